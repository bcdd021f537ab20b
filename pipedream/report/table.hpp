#pragma once

#include <string>
#include <vector>

namespace pipedream {

/// A text table for the terminal: a header, rows, columns as wide as they must be, numbers to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}

  /// Missing cells at the end are empty. Cells may hold UTF-8.
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  [[nodiscard]] bool empty() const { return rows_.empty(); }

  /// Two spaces between columns, a line under the header, every line ended. A column is set to the right if all its cells begin with a digit,
  /// sign or are empty or "-".
  [[nodiscard]] std::string text() const;
  /// The same as a Markdown table.
  [[nodiscard]] std::string markdown() const;

 private:
  [[nodiscard]] std::vector<std::size_t> widths() const;
  [[nodiscard]] bool is_number_column(std::size_t column) const;

  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

/// A number for people: up to `digits` significant digits, no exponent where it can be helped, no trailing zeros ("12.5", "0.031", "1200").
[[nodiscard]] std::string format_number(double value, int digits = 4);

/// 0.1234 -> "12.3 %".
[[nodiscard]] std::string format_share(double share);

}  // namespace pipedream
