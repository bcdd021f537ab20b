#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Quantities as people write them. Inside the program a quantity is a plain number whose name ends in its unit:
/// `_ms` milliseconds, `_s` seconds, `_bytes` bytes, `_bytes_per_s` bytes per second.
namespace pipedream {

/// "16GiB", "512 MB", "1.5e9", "4096B" to bytes. KB, MB, ... are powers of 1000, KiB, MiB, ... of 1024; a bare number is bytes.
/// @throws UsageError for anything else, negative numbers included
[[nodiscard]] std::int64_t parse_bytes(std::string_view text);

/// "10Gbit/s", "12GB/s", "25Gbps", "1e9" to bytes per second; "bit" forms are divided by 8, a bare number is bytes per second.
/// @throws UsageError for anything else and for 0 or less
[[nodiscard]] double parse_bandwidth(std::string_view text);

/// "50us", "1.5ms", "30s", "2min" to milliseconds; a bare number is seconds.
/// @throws UsageError for anything else and for negative numbers
[[nodiscard]] double parse_duration_ms(std::string_view text);

/// 1536 -> "1.50 KiB"; three significant digits, powers of 1024. Negative numbers are allowed.
[[nodiscard]] std::string format_bytes(double bytes);

/// 1.25e9 -> "10 Gbit/s".
[[nodiscard]] std::string format_bandwidth(double bytes_per_s);

/// Milliseconds in the unit that reads best: "812 us", "1.24 ms", "3.50 s", "4 min 10 s".
[[nodiscard]] std::string format_ms(double ms);

/// 1234567 -> "1,234,567".
[[nodiscard]] std::string format_count(std::int64_t n);

}  // namespace pipedream
