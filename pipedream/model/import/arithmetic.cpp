#include <ATen/ATen.h>

#include <cmath>
#include <unordered_map>

#include "pipedream/model/import/torch_operators.hpp"

/// Arithmetic on sizes, with Python's meaning.
namespace pipedream {
namespace {

using c10::IValue;
using Values = std::vector<IValue>;

bool is_whole(const IValue& value) { return !value.isDouble(); }
double real(const IValue& value) {
  return value.isDouble() ? value.toDouble() : value.isBool() ? value.toBool() : static_cast<double>(value.toInt());
}
std::int64_t whole(const IValue& value) {
  TORCH_CHECK(is_whole(value), "a whole number is expected");
  return value.isBool() ? value.toBool() : value.toInt();
}

std::int64_t checked(bool overflow, std::int64_t value) {
  TORCH_CHECK(!overflow, "arithmetic on sizes overflows");
  return value;
}
std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  const bool overflow = __builtin_add_overflow(a, b, &r);
  return checked(overflow, r);
}
std::int64_t subtract(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  const bool overflow = __builtin_sub_overflow(a, b, &r);
  return checked(overflow, r);
}
std::int64_t multiply(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  const bool overflow = __builtin_mul_overflow(a, b, &r);
  return checked(overflow, r);
}
std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  TORCH_CHECK(b != 0 && !(b == -1 && a == INT64_MIN), "arithmetic on sizes divides by zero");
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
std::int64_t modulo(std::int64_t a, std::int64_t b) { return a - floor_divide(a, b) * b; }
std::int64_t power(std::int64_t a, std::int64_t b) {
  TORCH_CHECK(b >= 0 && b < 64, "a power of sizes is too large");
  std::int64_t result = 1;
  for (; b > 0; --b) result = multiply(result, a);
  return result;
}

template <std::int64_t (*of_whole)(std::int64_t, std::int64_t), double (*of_real)(double, double)>
Values arithmetic(const BoundStep&, const Values& a, const Frame&) {
  if (is_whole(a.at(0)) && is_whole(a.at(1))) return {of_whole(whole(a[0]), whole(a[1]))};
  return {of_real(real(a.at(0)), real(a.at(1)))};
}
double add_real(double a, double b) { return a + b; }
double subtract_real(double a, double b) { return a - b; }
double multiply_real(double a, double b) { return a * b; }
double floor_divide_real(double a, double b) { return std::floor(a / b); }
double modulo_real(double a, double b) { return a - std::floor(a / b) * b; }
double power_real(double a, double b) { return std::pow(a, b); }

template <bool (*compare)(double, double)>
Values comparison(const BoundStep&, const Values& a, const Frame&) {
  return {compare(real(a.at(0)), real(a.at(1)))};
}
bool equal(double a, double b) { return a == b; }
bool unequal(double a, double b) { return a != b; }
bool less(double a, double b) { return a < b; }
bool less_equal(double a, double b) { return a <= b; }
bool greater(double a, double b) { return a > b; }
bool greater_equal(double a, double b) { return a >= b; }

Values size_step(const BoundStep&, const Values& a, const Frame&) { return {a.at(0).toTensor().size(a.at(1).toInt())}; }
Values stride_step(const BoundStep&, const Values& a, const Frame&) { return {a.at(0).toTensor().stride(a.at(1).toInt())}; }
Values numel_step(const BoundStep&, const Values& a, const Frame&) { return {a.at(0).toTensor().numel()}; }
Values true_divide_step(const BoundStep&, const Values& a, const Frame&) { return {real(a.at(0)) / real(a.at(1))}; }
Values negate_step(const BoundStep&, const Values& a, const Frame&) {
  return is_whole(a.at(0)) ? Values{subtract(0, whole(a[0]))} : Values{-real(a[0])};
}
Values to_whole_step(const BoundStep&, const Values& a, const Frame&) {
  const double value = std::trunc(real(a.at(0)));
  TORCH_CHECK(std::abs(value) < 9e18, "a size is too large");
  return {static_cast<std::int64_t>(value)};
}
Values to_real_step(const BoundStep&, const Values& a, const Frame&) { return {real(a.at(0))}; }
Values minimum_step(const BoundStep&, const Values& a, const Frame&) { return {real(a.at(1)) < real(a.at(0)) ? a[1] : a[0]}; }
Values maximum_step(const BoundStep&, const Values& a, const Frame&) { return {real(a.at(1)) > real(a.at(0)) ? a[1] : a[0]}; }
Values root_step(const BoundStep&, const Values& a, const Frame&) { return {std::sqrt(real(a.at(0)))}; }
Values not_step(const BoundStep&, const Values& a, const Frame&) { return {real(a.at(0)) == 0}; }
Values choose_step(const BoundStep&, const Values& a, const Frame&) { return {real(a.at(0)) != 0 ? a.at(1) : a.at(2)}; }
Values and_step(const BoundStep&, const Values& a, const Frame&) { return {real(a.at(0)) != 0 && real(a.at(1)) != 0}; }
Values or_step(const BoundStep&, const Values& a, const Frame&) { return {real(a.at(0)) != 0 || real(a.at(1)) != 0}; }

}  // namespace

OwnOperator arithmetic_operator(const std::string& target) {
  static const std::unordered_map<std::string, OwnOperator> operators{
      {"aten.sym_size.int", size_step},
      {"aten.sym_stride.int", stride_step},
      {"aten.sym_numel.default", numel_step},
      {"_operator.add", arithmetic<add, add_real>},
      {"_operator.sub", arithmetic<subtract, subtract_real>},
      {"_operator.mul", arithmetic<multiply, multiply_real>},
      {"_operator.floordiv", arithmetic<floor_divide, floor_divide_real>},
      {"_operator.mod", arithmetic<modulo, modulo_real>},
      {"_operator.pow", arithmetic<power, power_real>},
      {"_operator.truediv", true_divide_step},
      {"_operator.neg", negate_step},
      {"_operator.eq", comparison<equal>},
      {"_operator.ne", comparison<unequal>},
      {"_operator.lt", comparison<less>},
      {"_operator.le", comparison<less_equal>},
      {"_operator.gt", comparison<greater>},
      {"_operator.ge", comparison<greater_equal>},
      {"_operator.and_", and_step},
      {"_operator.or_", or_step},
      {"math.trunc", to_whole_step},
      {"math.sqrt", root_step},
      {"sym_int", to_whole_step},
      {"sym_float", to_real_step},
      {"sym_max", maximum_step},
      {"sym_min", minimum_step},
      {"sym_not", not_step},
      {"sym_ite", choose_step},
      {"sym_sqrt", root_step},
  };
  const auto at = operators.find(target.starts_with("torch.") ? target.substr(6) : target);
  return at == operators.end() ? nullptr : at->second;
}

}  // namespace pipedream
