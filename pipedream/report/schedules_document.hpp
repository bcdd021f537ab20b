#pragma once

#include <string>

namespace pipedream {

/// The page docs/schedules.md: what schedules are, and of every schedule a grid, formulas and the source. A test compares the page with it.
[[nodiscard]] std::string schedules_document();

}  // namespace pipedream
