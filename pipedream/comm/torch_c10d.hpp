#pragma once

// What differs between releases of libtorch's c10d, and between builds with and without Gloo, stays in this file. Written for 1.13; internal
// to pipedream/comm.
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace pipedream::c10d_api {

using Work = c10::intrusive_ptr<c10d::Work>;
using GlooGroup = c10d::ProcessGroupGloo;

/// Connects all ranks with each other; listens at `address` only.
inline c10::intrusive_ptr<GlooGroup> make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const std::string& address,
                                                     std::chrono::milliseconds timeout) {
  auto options = GlooGroup::Options::create(timeout);
  options->devices.push_back(GlooGroup::createDeviceForHostname(address));
  options->threads = 1;  // for collectives, which are not used
  return c10::make_intrusive<GlooGroup>(store, rank, size, options);
}

}  // namespace pipedream::c10d_api
