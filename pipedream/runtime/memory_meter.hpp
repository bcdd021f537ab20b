#pragma once

#include <cstdint>
#include <memory>

namespace pipedream {

/// Counts the bytes of tensor memory that a rank allocated, through libtorch's reporting interface, wherever they are freed.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  [[nodiscard]] std::int64_t current_bytes() const;
  [[nodiscard]] std::int64_t peak_bytes() const;

  /// While it lives, allocations of this thread count for the meter.
  class Scope {
   public:
    explicit Scope(MemoryMeter& meter);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    struct Guard;
    std::unique_ptr<Guard> guard_;
  };

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Memory of this process that is resident now, code and files left out (RssAnon of /proc/self/status); 0 where that cannot be read. After
/// prepare_process() it hardly ever falls, so at the end of a run it is what the run needed at most.
[[nodiscard]] std::int64_t resident_bytes();

/// Call at program start. glibc gives big blocks back to the system at every free and faults them in again at the next allocation; with these
/// thresholds it keeps them (10 to 25 % of a step of a convolutional network). Warnings of libtorch about its own allocator are left out.
void prepare_process();

}  // namespace pipedream
