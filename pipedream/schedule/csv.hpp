#pragma once

#include <string>

#include "pipedream/schedule/schedule.hpp"

namespace pipedream {

/// How a schedule is written as CSV, one row per rank, one action per cell.
enum class CsvForm {
  Full,     ///< all we know: facts in lines that begin with #, versions, the body once
  Torch,    ///< as torch.distributed.pipelining reads with communication: no facts, no versions, unrolled; what it has no word for is left out
  Compute,  ///< the same with computations only
};
[[nodiscard]] std::string schedule_to_csv(const Schedule& schedule, CsvForm form = CsvForm::Full);

/// Reads any of the forms; what a file of PyTorch does not say is taken from its cells (a chain of stages, each on the rank whose row runs it, one
/// optimizer step at the end). @throws InputError with file, line and cell
[[nodiscard]] Schedule schedule_from_csv(const std::string& text, const std::string& file);

}  // namespace pipedream
