#pragma once

#include <torch/csrc/api/include/torch/version.h>
#include <cstddef>
#include <cstdint>

/// All differences between the releases of libtorch that this project meets.
namespace pipedream {

/// Type of the totals in c10::MemoryReportingInfoBase::reportMemoryUsage.
#if TORCH_VERSION_MAJOR >= 2
using ReportedTotal = std::size_t;
#else
using ReportedTotal = std::int64_t;
#endif

}  // namespace pipedream
