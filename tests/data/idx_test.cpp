#include "pipedream/data/idx.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

// A folder that goes away with the test.
struct ScratchFolder {
  fs::path path = fs::temp_directory_path() / ("pipedream-idx-" + std::to_string(getpid()));
  ScratchFolder() { fs::create_directories(path); }
  ~ScratchFolder() { fs::remove_all(path); }
  fs::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path / name;
  }
};

std::string gzipped(const std::string& bytes) {
  std::string out(compressBound(bytes.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string header(std::initializer_list<unsigned> sizes, char type = 8) {
  std::string bytes = {0, 0, type, static_cast<char>(sizes.size())};
  for (const unsigned size : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>((size >> shift) & 0xff);
  return bytes;
}

const std::string& two_images() {
  static const std::string bytes = header({2, 2, 3}) + "abcdefghijkl";
  return bytes;
}

std::string error_of(const fs::path& file, int rank = 3) {
  try {
    (void)load_idx(file, rank);
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr(file.string()));
    EXPECT_EQ(error.exit_code(), ExitCode::InputError);
    return error.what();
  }
  return "no error";
}

TEST(Idx, ReadsPlainAndCompressedFiles) {
  const ScratchFolder folder;
  for (const std::string& bytes : {two_images(), gzipped(two_images())}) {
    const IdxArray array = load_idx(folder.write("images", bytes), 3);
    EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 2, 3}));
    EXPECT_EQ(std::string(array.values.begin(), array.values.end()), "abcdefghijkl");
  }
}

TEST(Idx, EveryCutIsAnError) {
  const ScratchFolder folder;
  for (std::size_t length = 0; length < two_images().size(); ++length)
    EXPECT_NE(error_of(folder.write("cut", two_images().substr(0, length))), "no error") << length;
  const std::string compressed = gzipped(two_images());
  for (std::size_t length = 0; length < compressed.size(); ++length)
    EXPECT_NE(error_of(folder.write("cut.gz", compressed.substr(0, length))), "no error") << length;
}

TEST(Idx, EveryDamagedByteOfACompressedFileIsNoticedOrHarmless) {
  const ScratchFolder folder;
  const std::string compressed = gzipped(two_images());
  for (std::size_t i = 0; i < compressed.size(); ++i) {
    std::string damaged = compressed;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x5a);
    const fs::path file = folder.write("damaged.gz", damaged);
    const std::string error = error_of(file);
    if (error != "no error") continue;
    const IdxArray array = load_idx(file, 3);  // the time or system in the gzip header
    EXPECT_EQ(std::string(array.values.begin(), array.values.end()), "abcdefghijkl") << i;
  }
}

TEST(Idx, HostileHeadersSayWhatIsWrong) {
  const ScratchFolder folder;
  const auto error = [&](const std::string& bytes, int rank = 3) { return error_of(folder.write("hostile", bytes), rank); };
  EXPECT_THAT(error(""), HasSubstr("too short"));
  EXPECT_THAT(error(std::string("\0\0\x08", 3)), HasSubstr("too short"));
  EXPECT_THAT(error("\x89PNG....."), HasSubstr("begins with bytes 89 50"));
  EXPECT_THAT(error("hello, world"), HasSubstr("is no IDX file"));
  EXPECT_THAT(error(std::string("\0\1\x08\x03", 4)), HasSubstr("begins with bytes 00 01"));
  for (const char type : {0x09, 0x0b, 0x0c, 0x0d, 0x0e, 0x00, 0x7f})
    EXPECT_THAT(error(header({1, 1, 1}, type) + "x"), HasSubstr("only unsigned bytes"));
  EXPECT_THAT(error(header({}) + "x"), HasSubstr("has 0 dimensions"));
  EXPECT_THAT(error(header({3}) + "abc"), HasSubstr("has 1 dimensions where 3"));
  EXPECT_THAT(error(two_images(), 1), HasSubstr("where 1 are expected (labels)"));
  EXPECT_THAT(error(header({0, 2, 3})), HasSubstr("dimension 0 is 0"));
  EXPECT_THAT(error(header({2, 0, 3})), HasSubstr("dimension 1 is 0"));
  EXPECT_THAT(error(header({0xffffffff, 0xffffffff, 0xffffffff})), HasSubstr("more than can be"));
  EXPECT_THAT(error(header({0xffffffff, 16, 1})), HasSubstr("cut off"));  // claims 64 GiB, holds none: no memory is taken for it
  EXPECT_THAT(error(header({60000, 28, 28}) + "abc"), HasSubstr("cut off: 3 values of 47040000"));
  EXPECT_THAT(error(two_images() + "m"), HasSubstr("goes on after its 12 values"));
  EXPECT_THAT(error(gzipped(gzipped(two_images()))), HasSubstr("is no IDX file"));
  EXPECT_THAT(error(gzipped("")), HasSubstr("too short"));
  EXPECT_THAT(error(gzipped(two_images()) + gzipped("more")), HasSubstr("goes on"));
}

TEST(Idx, MissingFilesAndFolders) {
  const ScratchFolder folder;
  EXPECT_THAT(error_of(folder.path / "none"), HasSubstr("No such file"));
  EXPECT_THAT(error_of(folder.path), HasSubstr("is a folder"));
}

TEST(Idx, AnyBytesGiveAnArrayOrAnInputError) {
  const ScratchFolder folder;
  ASSERT_TRUE(rc::check([&] {
    const auto tail = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
    const bool plausible = *rc::gen::arbitrary<bool>();
    const fs::path file = folder.write("any", plausible ? std::string("\0\0\x08\x01", 4) + tail : tail);
    try {
      const IdxArray array = load_idx(file, 1);
      RC_ASSERT(static_cast<std::int64_t>(array.values.size()) == array.shape.at(0));
    } catch (const InputError&) {
    }
  }));
}

}  // namespace
}  // namespace pipedream
