#include "pipedream/core/units.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

/// Splits "12.5 GB/s" into the number and the factor of its unit; `bare` is the factor of a number without unit.
template <std::size_t N>
double parse_quantity(std::string_view text, const std::array<Unit, N>& units, double bare, std::string_view what, std::string_view example) {
  const auto bad = [&](std::string_view why) {
    return UsageError(fmt::format("'{}' is not a {}: {}", text, what, why), fmt::format("write it like {}", example));
  };
  std::string_view rest = text;
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  while (!rest.empty() && rest.back() == ' ') rest.remove_suffix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc() || !std::isfinite(value)) throw bad("it does not start with a number");
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  if (value < 0) throw bad("it is negative");
  if (rest.empty()) return value * bare;
  for (const auto& unit : units)
    if (unit.name == rest) return value * unit.factor;
  throw bad(fmt::format("unknown unit '{}'", rest));
}

std::string three_digits(double value) {
  const double size = std::abs(value);
  if (size >= 99.95) return fmt::format("{:.0f}", value);
  if (size >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

}  // namespace

std::int64_t parse_bytes(std::string_view text) {
  static constexpr std::array<Unit, 15> units{{{"B", 1},
                                               {"KB", 1e3},
                                               {"kB", 1e3},
                                               {"MB", 1e6},
                                               {"GB", 1e9},
                                               {"TB", 1e12},
                                               {"K", 1024.0},
                                               {"M", 1048576.0},
                                               {"G", 1073741824.0},
                                               {"T", 1099511627776.0},
                                               {"KiB", 1024.0},
                                               {"MiB", 1048576.0},
                                               {"GiB", 1073741824.0},
                                               {"TiB", 1099511627776.0},
                                               {"bytes", 1}}};
  const double value = parse_quantity(text, units, 1, "size", "16GiB, 512MB or a number of bytes");
  if (value > 9e18) throw UsageError(fmt::format("'{}' is not a size: it is too large", text), "write it like 16GiB");
  return static_cast<std::int64_t>(std::llround(value));
}

double parse_bandwidth(std::string_view text) {
  static constexpr std::array<Unit, 18> units{{{"B/s", 1},
                                               {"KB/s", 1e3},
                                               {"kB/s", 1e3},
                                               {"MB/s", 1e6},
                                               {"GB/s", 1e9},
                                               {"TB/s", 1e12},
                                               {"KiB/s", 1024.0},
                                               {"MiB/s", 1048576.0},
                                               {"GiB/s", 1073741824.0},
                                               {"bit/s", 0.125},
                                               {"kbit/s", 125},
                                               {"Kbit/s", 125},
                                               {"Mbit/s", 125e3},
                                               {"Gbit/s", 125e6},
                                               {"Tbit/s", 125e9},
                                               {"Kbps", 125},
                                               {"Mbps", 125e3},
                                               {"Gbps", 125e6}}};
  const double value = parse_quantity(text, units, 1, "bandwidth", "10Gbit/s, 12GB/s or bytes per second");
  if (value <= 0) throw UsageError(fmt::format("'{}' is not a bandwidth: it must be above 0", text), "write it like 10Gbit/s");
  if (value < 1) throw UsageError(fmt::format("'{}' is not a bandwidth: it is below 1 byte per second", text), "write it like 10Gbit/s");
  return value;
}

constexpr double kLongestMs = 1e12;

double parse_duration_ms(std::string_view text) {
  static constexpr std::array<Unit, 7> units{{{"ns", 1e-6}, {"us", 1e-3}, {"ms", 1}, {"s", 1e3}, {"min", 6e4}, {"m", 6e4}, {"h", 3.6e6}}};
  const double ms = parse_quantity(text, units, 1e3, "duration", "50us, 1.5ms or 30s");
  if (ms > kLongestMs)
    throw UsageError(fmt::format("'{}' is not a duration to plan with: it is longer than 30 years", text), "write it like 50us, 1.5ms or 30s");
  return ms;
}

std::string format_bytes(double bytes) {
  static constexpr std::array<std::string_view, 6> names{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 1023.5 && unit + 1 < names.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{} {}", three_digits(bytes), names[unit]);
}

std::string format_bandwidth(double bytes_per_s) {
  const double bits = bytes_per_s * 8;
  if (bits >= 1e9) return fmt::format("{:.4g} Gbit/s", bits / 1e9);
  if (bits >= 1e6) return fmt::format("{:.4g} Mbit/s", bits / 1e6);
  return fmt::format("{:.4g} kbit/s", bits / 1e3);
}

std::string format_ms(double ms) {
  const double size = std::abs(ms);
  if (size == 0) return "0 ms";
  if (size < 0.9995) return three_digits(ms * 1e3) + " us";
  if (size < 999.5) return three_digits(ms) + " ms";
  if (size < 120e3) return three_digits(ms / 1e3) + " s";
  if (!(size < 1e15)) return fmt::format("{:.3g} h", ms / 3.6e6);
  const auto seconds = static_cast<std::int64_t>(std::llround(ms / 1e3));
  if (seconds < 7200) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
}

std::string format_count(std::int64_t n) {
  std::string digits = std::to_string(n < 0 ? -n : n);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<std::size_t>(at), ",");
  return n < 0 ? "-" + digits : digits;
}

}  // namespace pipedream
