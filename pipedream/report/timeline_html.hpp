#pragma once

#include <string>
#include <vector>

#include "pipedream/sim/trace.hpp"

namespace pipedream {

struct NamedTrace {
  std::string title;
  Trace trace;
};

/// A page that opens by itself in a browser, without network: a timeline per trace, a row per rank, zoom by wheel, shift by drag, a box with stage,
/// micro-batch, version and duration under the pointer, colours by kind. Several traces share the scale of time, so prediction and measurement
/// compare.
[[nodiscard]] std::string timeline_html(const std::vector<NamedTrace>& traces);

}  // namespace pipedream
