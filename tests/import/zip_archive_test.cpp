#include "pipedream/model/import/zip_archive.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixtures.hpp"
#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

using ::testing::HasSubstr;
using testing::make_zip;
using testing::ZipOptions;

ZipArchive archive_of(std::string bytes) { return ZipArchive(MappedFile::from_bytes(std::move(bytes), "a.zip")); }

std::string error_of(const std::string& bytes) {
  try {
    const ZipArchive archive = archive_of(bytes);
    for (const ZipEntry& entry : archive.entries()) (void)archive.read(entry);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

const std::vector<std::pair<std::string, std::string>> kEntries{{"m/a", "hello"}, {"m/b/c", std::string(1000, 'x')}, {"m/empty", ""}};

TEST(ZipArchive, ReadsWhatWasWritten) {
  for (const bool zip64 : {false, true}) {
    for (const bool descriptor : {false, true}) {
      for (const bool deflate : {false, true}) {
        const ZipArchive archive = archive_of(make_zip(kEntries, {zip64, descriptor, deflate, "a comment"}));
        ASSERT_EQ(archive.entries().size(), kEntries.size());
        for (const auto& [name, content] : kEntries) {
          ASSERT_NE(archive.find(name), nullptr);
          EXPECT_EQ(archive.read(*archive.find(name)).bytes, content) << name << zip64 << descriptor << deflate;
        }
        EXPECT_EQ(archive.find("m/none"), nullptr);
      }
    }
  }
}

TEST(ZipArchive, StoredEntriesAreNotCopied) {
  const auto file = MappedFile::from_bytes(make_zip(kEntries), "a.zip");
  const ZipArchive archive(file);
  const ZipData data = archive.read(*archive.find("m/b/c"));
  EXPECT_GE(data.bytes.data(), file->bytes().data());
  EXPECT_LE(data.bytes.data() + data.bytes.size(), file->bytes().data() + file->bytes().size());
}

TEST(ZipArchive, NoticesAFlippedByte) {
  std::string bytes = make_zip(kEntries);
  bytes[bytes.find("hello") + 1] = 'E';
  EXPECT_THAT(error_of(bytes), HasSubstr("m/a damaged: its CRC"));
}

TEST(ZipArchive, RefusesEveryTruncation) {
  for (const bool zip64 : {false, true}) {
    const std::string bytes = make_zip(kEntries, {zip64, false, false, ""});
    for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_NE(error_of(bytes.substr(0, size)), "") << size;
  }
}

TEST(ZipArchive, RefusesNamesThatEscapeOrRepeat) {
  EXPECT_THAT(error_of(make_zip({{"m/../a", "1"}})), HasSubstr("with the name"));
  EXPECT_THAT(error_of(make_zip({{"/a", "1"}})), HasSubstr("with the name"));
  EXPECT_THAT(error_of(make_zip({{"a", "1"}, {"a", "2"}})), HasSubstr("has a twice"));
  EXPECT_EQ(error_of(make_zip({{"m/a..b", "1"}})), "");
}

TEST(ZipArchive, RefusesEntriesOutsideTheFile) {
  std::string bytes = make_zip({{"a", "1234"}});
  const std::size_t directory = bytes.find("PK\1\2");
  std::string far = bytes;
  far[directory + 42] = '\x7f';  // offset of the local header
  EXPECT_THAT(error_of(far), HasSubstr("local header"));
  std::string large = bytes;
  large[directory + 20] = large[directory + 24] = '\x7f';  // both sizes
  EXPECT_THAT(error_of(large), HasSubstr("reaching out of the file"));
}

TEST(ZipArchive, RefusesABombWithoutReservingMemoryForIt) {
  std::string bytes = make_zip({{"a", "1234"}}, {false, false, true, ""});
  const std::size_t directory = bytes.find("PK\1\2");
  bytes[directory + 27] = '\x3f';  // claims to unpack to about 1 GiB from a few bytes
  EXPECT_THAT(error_of(bytes), HasSubstr("cannot be unpacked"));
}

TEST(ZipArchive, MutatedArchivesGiveAnErrorOrTheContent) {
  int read = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const std::string bytes = make_zip(kEntries, {seed % 2 == 0, seed % 3 == 0, seed % 5 == 0, ""});
    const std::string mutant = testing::mutate(bytes, seed, 1 + static_cast<int>(seed % 3));
    try {
      const ZipArchive archive = archive_of(mutant);
      for (const auto& [name, content] : kEntries) {
        const ZipEntry* entry = archive.find(name);
        if (entry == nullptr) continue;
        EXPECT_EQ(archive.read(*entry).bytes, content);
      }
      ++read;
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(read, 0);  // some changes fall on bytes of no meaning
}

}  // namespace
}  // namespace pipedream
