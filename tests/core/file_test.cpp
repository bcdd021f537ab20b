#include "pipedream/core/file.hpp"

#include <gtest/gtest.h>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

TEST(File, WhatWasWrittenIsRead) {
  const auto path = std::filesystem::path(testing::TempDir()) / "file_test.txt";
  write_file(path, "one");
  write_file(path, "two\n");
  EXPECT_EQ(read_file(path), "two\n");
  std::filesystem::remove(path);
}

TEST(File, MissingFileNamesItself) {
  try {
    (void)read_file("/no/such/file");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "/no/such/file: cannot read: No such file or directory");
    EXPECT_EQ(error.exit_code(), ExitCode::InputError);
  }
}

TEST(File, FullDiskIsReported) {
  try {
    write_file("/dev/full", "x");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "/dev/full: cannot write: No space left on device");
  }
}

TEST(File, FolderWhereAFileIsExpectedIsReported) { EXPECT_THROW((void)read_file(testing::TempDir()), InputError); }

}  // namespace
}  // namespace pipedream
