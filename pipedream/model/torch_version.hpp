#pragma once

#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 5)
#include <optional>
#else
#include <c10/util/Optional.h>
#endif

/// What differs between the releases of libtorch that this program is built with: 1.13 and newer.
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

}  // namespace pipedream
