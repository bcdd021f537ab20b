#pragma once

#include <torch/csrc/api/include/torch/version.h>

#include <cstddef>
#include <cstdint>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 5)
#include <optional>
#else
#include <c10/util/Optional.h>
#endif

#if TORCH_VERSION_MAJOR >= 2
#include <c10/util/Logging.h>
#endif

/// All differences between the releases of libtorch that this program is built with: 1.13 and newer.
namespace pipedream {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 5)
template <typename T>
using TorchOptional = std::optional<T>;
inline constexpr auto kTorchNone = std::nullopt;
#else
template <typename T>
using TorchOptional = c10::optional<T>;
inline constexpr auto kTorchNone = c10::nullopt;
#endif

/// Type of the totals in c10::MemoryReportingInfoBase::reportMemoryUsage.
#if TORCH_VERSION_MAJOR >= 2
using ReportedTotal = std::size_t;
#else
using ReportedTotal = std::int64_t;
#endif

/// libtorch 2.x warns on standard error, at every run, of blocks that were allocated before somebody listened to its allocator.
inline void quiet_allocator_warnings() {
#if TORCH_VERSION_MAJOR >= 2
  FLAGS_caffe2_log_level = 2;  // errors
#endif
}

}  // namespace pipedream
