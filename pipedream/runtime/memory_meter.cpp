#include "pipedream/runtime/memory_meter.hpp"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <unordered_map>

#include "pipedream/model/torch_versions.hpp"

namespace pipedream {

struct MemoryMeter::State {
  std::atomic<std::int64_t> current{0}, peak{0};
  void add(std::int64_t bytes) {
    const std::int64_t now = current += bytes;
    std::int64_t seen = peak;
    while (now > seen && !peak.compare_exchange_weak(seen, now)) {
    }
  }
};

namespace {

/// Who allocated a block. A block that is freed where no meter listens stays here until its address is used again.
class BlockTable {
 public:
  using Owner = std::shared_ptr<void>;
  void enter(void* block, std::shared_ptr<void> owner, std::int64_t bytes, void (*account)(void*, std::int64_t)) {
    const std::lock_guard lock(mutex_);
    Entry& entry = blocks_[block];
    if (entry.owner) account(entry.owner.get(), -entry.bytes);
    account(owner.get(), bytes);
    entry = {std::move(owner), bytes};
  }
  void leave(void* block, void (*account)(void*, std::int64_t)) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(block);
    if (found == blocks_.end()) return;
    account(found->second.owner.get(), -found->second.bytes);
    blocks_.erase(found);
  }

 private:
  struct Entry {
    std::shared_ptr<void> owner;
    std::int64_t bytes = 0;
  };
  std::mutex mutex_;  // guards blocks_
  std::unordered_map<void*, Entry> blocks_;
};

BlockTable& block_table() {
  static auto* table = new BlockTable;  // never destroyed: tensors may be freed at exit
  return *table;
}

class Reporter : public c10::MemoryReportingInfoBase {
 public:
  Reporter(std::shared_ptr<void> owner, void (*account)(void*, std::int64_t)) : owner_(std::move(owner)), account_(account) {}
  void reportMemoryUsage(void* block, int64_t bytes, ReportedTotal, ReportedTotal, c10::Device) override {
    if (bytes > 0) block_table().enter(block, owner_, bytes, account_);
    else if (bytes < 0) block_table().leave(block, account_);
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

 private:
  std::shared_ptr<void> owner_;
  void (*account_)(void*, std::int64_t);
};

}  // namespace

namespace {

/// libtorch warns of every block that was allocated before anybody listened and is freed while somebody does; that is ordinary here. Where it logs
/// through glog, only errors are let through. The flag is looked up because the headers of glog need not be installed.
void silence_warnings_of_the_allocator() {
  static const bool done = [] {
    if (auto* level = static_cast<int*>(::dlsym(RTLD_DEFAULT, "_ZN3fLI17FLAGS_minloglevelE"))) *level = std::max(*level, 2);
    return true;
  }();
  (void)done;
}

}  // namespace

MemoryMeter::MemoryMeter() : state_(std::make_shared<State>()) { silence_warnings_of_the_allocator(); }
MemoryMeter::~MemoryMeter() = default;
std::int64_t MemoryMeter::current_bytes() const { return state_->current; }
std::int64_t MemoryMeter::peak_bytes() const { return state_->peak; }

struct MemoryMeter::Scope::Guard {
  explicit Guard(std::shared_ptr<c10::DebugInfoBase> info) : guard(c10::DebugInfoKind::PROFILER_STATE, std::move(info)) {}
  c10::DebugInfoGuard guard;
};

MemoryMeter::Scope::Scope(MemoryMeter& meter)
    : guard_(std::make_unique<Guard>(
          std::make_shared<Reporter>(meter.state_, [](void* state, std::int64_t bytes) { static_cast<State*>(state)->add(bytes); }))) {}
MemoryMeter::Scope::~Scope() = default;

namespace {

std::int64_t kilobytes_of(const char* key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return 1024 * std::atoll(line.c_str() + std::strlen(key));
  return 0;
}

}  // namespace

std::int64_t resident_bytes() { return kilobytes_of("RssAnon:"); }

void prepare_process() {
  quiet_allocator_warnings();
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2147483647);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 1);  // ranks that are threads share one heap: what one frees another takes (a third less resident memory)
#endif
}

}  // namespace pipedream
