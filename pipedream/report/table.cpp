#include "pipedream/report/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace pipedream {
namespace {

// Characters on the screen: bytes that do not continue a UTF-8 sequence.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return right ? space + text : text + space;
}

bool is_number(const std::string& cell) {
  if (cell.empty() || cell == "-") return true;
  const std::size_t start = cell[0] == '-' || cell[0] == '+' ? 1 : 0;
  return start < cell.size() && cell[start] >= '0' && cell[start] <= '9';
}

const std::string kEmpty;

const std::string& cell_at(const std::vector<std::string>& row, std::size_t column) { return column < row.size() ? row[column] : kEmpty; }

}  // namespace

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> result;
  for (std::size_t column = 0; column < header_.size(); ++column) {
    std::size_t width = width_of(header_[column]);
    for (const auto& row : rows_) width = std::max(width, width_of(cell_at(row, column)));
    result.push_back(width);
  }
  return result;
}

bool Table::is_number_column(std::size_t column) const {
  return !rows_.empty() && std::all_of(rows_.begin(), rows_.end(), [&](const auto& row) { return is_number(cell_at(row, column)); });
}

std::string Table::text() const {
  const std::vector<std::size_t> width = widths();
  std::string result;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t column = 0; column < width.size(); ++column)
      line += (column > 0 ? "  " : "") + padded(cell_at(cells, column), width[column], is_number_column(column));
    line.erase(line.find_last_not_of(' ') + 1);
    result += line + "\n";
  };
  add_line(header_);
  std::vector<std::string> rules;
  for (const std::size_t w : width) rules.emplace_back(w, '-');
  add_line(rules);
  for (const auto& row : rows_) add_line(row);
  return result;
}

std::string Table::markdown() const {
  const std::vector<std::size_t> width = widths();
  std::string result;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    for (std::size_t column = 0; column < width.size(); ++column)
      result += "| " + padded(cell_at(cells, column), width[column], is_number_column(column)) + " ";
    result += "|\n";
  };
  add_line(header_);
  for (std::size_t column = 0; column < width.size(); ++column) result += is_number_column(column) ? "|--:" : "|---";
  result += "|\n";
  for (const auto& row : rows_) add_line(row);
  return result;
}

std::string format_number(double value, int digits) {
  if (!std::isfinite(value)) return value > 0 ? "inf" : value < 0 ? "-inf" : "nan";
  if (value == 0) return "0";
  const int decimals = std::max(0, digits - 1 - static_cast<int>(std::floor(std::log10(std::abs(value)))));
  std::string text = fmt::format("{:.{}f}", value, std::min(decimals, 12));
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string format_share(double share) { return fmt::format("{:.1f} %", share * 100); }

}  // namespace pipedream
