#pragma once

#include <string>
#include <vector>

#include "pipedream/model/import/program.hpp"

namespace pipedream {

/// Why a program, or one step of it, cannot be trained here, and what to do about it.
struct ImportProblem {
  std::string place;  ///< "h.0.attn (model.py:12 in forward: ...)"; empty: the whole program
  std::string what;
  std::string remedy;
  bool operator==(const ImportProblem&) const = default;
};

/// Module path and source line of a step, as errors show them.
[[nodiscard]] std::string place_of(const ProgramStep& step);

/// Everything that is known not to work without asking libtorch for its operators: control flow, foreign operators, Python objects, numbers taken
/// from tensors, changed parameters, inputs without the batch in front.
[[nodiscard]] std::vector<ImportProblem> check_program(const Program& program);

/// @throws InputError that lists the problems (the first few of many), if there are any. @param file leads the message
void refuse(const std::vector<ImportProblem>& problems, const std::string& file);

/// How the batch appears in a program.
struct BatchSize {
  std::string symbol;        ///< "s77"; empty: the file was exported with a fixed batch
  std::int64_t example = 0;  ///< the batch it was exported with
  bool fixed = false;        ///< no other batch can run: its size is baked into a step
  std::string fixed_by;      ///< the step that does so
};

/// @pre check_program() found nothing: all inputs have the batch in front.
[[nodiscard]] BatchSize batch_size_of(const Program& program);

}  // namespace pipedream
