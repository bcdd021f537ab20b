#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipedream/model/import/layering.hpp"
#include "pipedream/model/import/program_check.hpp"
#include "pipedream/model/layer.hpp"
#include "pipedream/model/torch_versions.hpp"

/// Steps of a program, bound to libtorch's operators. Only for .cpp files: it needs libtorch's dispatcher.
namespace pipedream {

/// How an argument of an operator comes about at run time.
struct BoundArgument {
  enum class Kind { Constant, Slot, Device, IntegerList, TensorList, OptionalTensorList };
  Kind kind = Kind::Constant;
  c10::IValue constant;
  int slot = -1;
  std::vector<BoundArgument> elements;  ///< of lists that hold slots
  bool is_tensor = false;               ///< a number in this slot is turned into a tensor
};

/// Where the values of a running layer are: one entry per slot.
struct Frame {
  std::vector<c10::IValue> slots;
  c10::Device device = c10::kCPU;
  const ForwardContext* context = nullptr;
};

struct BoundStep;
/// Runs a step that is no operator of libtorch, or whose random numbers are ours; returns the results in the order of the step's outputs.
using OwnOperator = std::vector<c10::IValue> (*)(const BoundStep&, const std::vector<c10::IValue>& arguments, const Frame&);

struct BoundStep {
  int step = 0;  ///< index in the program
  TorchOptional<c10::OperatorHandle> handle;
  OwnOperator own = nullptr;                                       ///< instead of `handle`
  OwnOperator random = nullptr;                                    ///< instead of `handle` in training
  std::vector<BoundArgument> arguments;                            ///< in the order of the schema; of arithmetic, in the order of the file
  std::vector<std::pair<std::size_t, c10::IValue>> in_evaluation;  ///< arguments that differ in evaluation
  bool only_in_training = false;                                   ///< changes a buffer: skipped in evaluation, its result is its first argument
  std::vector<int> outputs;                                        ///< slots, lists flattened
  std::vector<int> dead;                                           ///< slots that nobody reads afterwards
  std::uint64_t key = 0;                                           ///< of the step, for random numbers: it does not depend on how the program is cut
  int batch_dimension = 0;                                         ///< of the randomised tensor; -1: it has none
  std::string name;                                                ///< operator, for errors
};

/// Binds one step. `slot_of` maps value ids to slots. @returns nothing, and adds to `problems`, if this libtorch cannot run it
[[nodiscard]] std::optional<BoundStep> bind_step(const Program& program, int index, const std::vector<int>& slot_of, const BatchSize& batch,
                                                 std::vector<ImportProblem>& problems);

/// A size read from another tensor than the program says: slots[output] = slots[value].size(dimension).
[[nodiscard]] BoundStep bind_size(const Program& program, const SizeSource& source, const std::vector<int>& slot_of);

/// Runs a step on a frame. @throws c10::Error
void run_step(const BoundStep& step, Frame& frame);

/// Operators that newer versions of torch have and this libtorch does not are registered once, with a form in terms of those it has.
void register_missing_operators();

/// Our own kernels by operator name ("dropout"); nothing if libtorch's is to be used.
[[nodiscard]] OwnOperator random_operator(const std::string& name);
[[nodiscard]] OwnOperator arithmetic_operator(const std::string& target);

/// ScalarType of an element type. @throws InputError if this libtorch has none
[[nodiscard]] c10::ScalarType scalar_type_of(ElementType element);

}  // namespace pipedream
