#pragma once

#include <ATen/autocast_mode.h>
#include <torch/csrc/api/include/torch/version.h>

/// Internal to pipedream/model.
namespace pipedream {

/// torch's autocast on this thread while it lives, without its cache of cast weights: they change from step to step, and versions of them live side
/// by side.
class AutocastScope {
 public:
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  AutocastScope(at::DeviceType device, at::ScalarType type)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        was_caching_(at::autocast::is_autocast_cache_enabled()),
        type_before_(at::autocast::get_autocast_dtype(device)) {
    set(true, false, type);
  }

 private:
  void set(bool enabled, bool caching, at::ScalarType type) const {
    at::autocast::set_autocast_dtype(device_, type);
    at::autocast::set_autocast_enabled(device_, enabled);
    at::autocast::set_autocast_cache_enabled(caching);
  }
#else
  AutocastScope(at::DeviceType device, at::ScalarType type)
      : device_(device),
        was_enabled_(device == at::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled()),
        was_caching_(at::autocast::is_autocast_cache_enabled()),
        type_before_(device == at::kCPU ? at::autocast::get_autocast_cpu_dtype() : at::autocast::get_autocast_gpu_dtype()) {
    set(true, false, type);
  }

 private:
  void set(bool enabled, bool caching, at::ScalarType type) const {
    if (device_ == at::kCPU) {
      at::autocast::set_autocast_cpu_dtype(type);
      at::autocast::set_cpu_enabled(enabled);
    } else {
      at::autocast::set_autocast_gpu_dtype(type);
      at::autocast::set_enabled(enabled);
    }
    at::autocast::set_autocast_cache_enabled(caching);
  }
#endif

 public:
  ~AutocastScope() { set(was_enabled_, was_caching_, type_before_); }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_, was_caching_;
  at::ScalarType type_before_;
};

}  // namespace pipedream
