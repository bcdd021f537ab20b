#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace pipedream {

/// Reads a whole file; "-" is standard input.
/// @throws InputError naming the file if it cannot be read
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

/// Writes a file whole or not at all: to a temporary file beside it, synced, then renamed. "-" is standard output.
/// @throws InputError naming the file and the reason (no such folder, disk full, ...)
void write_file(const std::filesystem::path& path, std::string_view content);

/// Makes a folder and its parents.
/// @throws InputError naming the folder and the reason
void make_folder(const std::filesystem::path& path);

}  // namespace pipedream
