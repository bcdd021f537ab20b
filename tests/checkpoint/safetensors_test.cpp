#include "pipedream/checkpoint/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"

namespace pipedream {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string file_of(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

SafetensorsFile read(std::string bytes) { return SafetensorsFile(MappedFile::from_bytes(std::move(bytes), "w.safetensors")); }

std::string error_of(const std::string& header, const std::string& data) {
  try {
    (void)read(file_of(header, data));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Safetensors, ReadsTheFormat) {
  // Written by hand after the format's description: header, then rows of little-endian floats.
  const SafetensorsFile file = read(file_of(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I64","shape":[],"data_offsets":[8,16]},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})",
      std::string("\0\0\x80\x3f\0\0\0\x40\7\0\0\0\0\0\0\0", 16)));
  ASSERT_EQ(file.entries().size(), 2U);
  EXPECT_EQ(file.entries()[0].name, "a");
  EXPECT_THAT(file.entries()[0].shape, ElementsAre(2, 1));
  EXPECT_EQ(file.find("b")->bytes, std::string("\7\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(Safetensors, RoundTrip) {
  const auto path = std::filesystem::temp_directory_path() / "pipedream_round_trip.safetensors";
  const std::vector<SafetensorsEntry> entries{
      {"fc.weight", "F32", {2, 3}, std::string_view("123456789012345678901234")}, {"n", "BOOL", {1}, "\1"}, {"empty", "F32", {0, 4}, ""}};
  write_safetensors(path, entries, {{"made_by", "test"}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  ASSERT_EQ(file.entries().size(), 3U);
  for (const SafetensorsEntry& entry : entries) {
    ASSERT_NE(file.find(entry.name), nullptr);
    EXPECT_EQ(file.find(entry.name)->bytes, entry.bytes);
    EXPECT_EQ(file.find(entry.name)->shape, entry.shape);
    EXPECT_EQ(file.find(entry.name)->type, entry.type);
  }
  EXPECT_EQ(file.metadata().at("made_by"), "test");
  const std::string bytes = read_file(path);
  EXPECT_EQ((8 + static_cast<unsigned char>(bytes[0])) % 8, 0);  // the data begins aligned
  std::filesystem::remove(path);
}

TEST(Safetensors, RefusesDamage) {
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234"), HasSubstr("has 4 bytes, its shape needs 8"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234"), HasSubstr("outside the file"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678"), HasSubstr("does not follow"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"),
              HasSubstr("does not follow"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "12345"),
              HasSubstr("there are 5 bytes of data, the tensors have 4"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F3","shape":[1],"data_offsets":[0,4]}})", "1234"), HasSubstr("not known"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", ""), HasSubstr("too large"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234"), HasSubstr("at least 0"));
  EXPECT_THAT(error_of("[]", ""), HasSubstr("an object is expected"));
  EXPECT_THROW((void)read(""), InputError);
  EXPECT_THROW((void)read(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{", 9)), InputError);
  EXPECT_THROW(write_safetensors("/nowhere/at/all", {}), InputError);
}

TEST(Safetensors, MutatedFilesGiveAnErrorOrAFile) {
  const std::string bytes = file_of(
      R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})", std::string(16, 'x'));
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_THROW((void)read(bytes.substr(0, size)), InputError);
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string mutant = bytes;
    for (int k = 0; k < 1 + i % 3; ++k)
      mutant[random() % mutant.size()] = random() % 2 == 0 ? static_cast<char>(random()) : "0129{}[],:\"-"[random() % 12];
    try {
      const SafetensorsFile file = read(mutant);
      for (const SafetensorsEntry& entry : file.entries()) EXPECT_LE(entry.bytes.size(), 16U);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::InputError) << error.what();
    }
  }
}

}  // namespace
}  // namespace pipedream
