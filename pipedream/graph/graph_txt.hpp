#pragma once

#include <string>

#include "pipedream/graph/profile.hpp"

namespace pipedream {

/// Reads and writes the layer graphs of the original PipeDream (graph.txt). One line per layer,
/// `ID -- DESC -- forward_compute_time=F, backward_compute_time=B, activation_size=A, parameter_size=P[ -- stage_id=K]`,
/// then one line per edge, `<TAB>SRC -- DST`. Times in ms per mini-batch, sizes in bytes; A is a number or a list `[a; b]`.
/// Source: msr-fiddle/pipedream, graph/graph.py. List outputs are kept (the original's reader loses them).
/// @throws InputError with file and line
[[nodiscard]] Profile profile_from_graph_txt(const std::string& text, const std::string& file);
[[nodiscard]] std::string profile_to_graph_txt(const Profile& profile);

}  // namespace pipedream
