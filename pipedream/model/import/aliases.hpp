#pragma once

#include <string_view>
#include <vector>

#include "pipedream/model/import/program.hpp"

/// Which values share memory, and which steps change memory in place.
namespace pipedream {

/// True for operators that change their first argument ("aten.relu_.default").
[[nodiscard]] bool is_in_place(const ProgramStep& step);
/// True for operators whose result may be a view of their first argument.
[[nodiscard]] bool is_view(const ProgramStep& step);
/// True if the step draws random numbers in training.
[[nodiscard]] bool is_random(const ProgramStep& step);
/// True if all results are numbers: sizes and arithmetic on them.
[[nodiscard]] bool is_scalar(const Program& program, const ProgramStep& step);
/// Buffers (value ids) that the step changes: those changed in place, and the statistics of batch and instance norm, which no schema admits.
[[nodiscard]] std::vector<int> changed_buffers(const Program& program, const std::vector<int>& roots, const ProgramStep& step);

/// For every value the one whose memory it may share: itself, or the origin of the views and in-place results it comes from.
[[nodiscard]] std::vector<int> memory_roots(const Program& program);

/// Steps (indices) that must stay in one layer, because they change memory that others of them see.
using StepGroup = std::vector<int>;

struct FunctionalProgram {
  Program program;
  std::vector<StepGroup> groups;
};

/// Replaces in-place operators by their out-of-place twins (the same name without "_"), so that every value may cross between layers. What
/// changes a buffer stays. Where memory is changed through a view and other views of it are used later, the steps concerned stay in place and form a
/// group; a model input changed so is copied first. Numerical results are the same.
[[nodiscard]] FunctionalProgram replace_in_place(Program program);

/// Drops assertions, and steps that neither an output nor a changed buffer depends on. Groups keep their meaning.
void remove_unused(FunctionalProgram& functional);

}  // namespace pipedream
