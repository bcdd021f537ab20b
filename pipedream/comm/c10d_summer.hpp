#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "pipedream/comm/c10d_link.hpp"

/// Internal to pipedream/comm.
namespace pipedream {

/// Sums over groups on a thread of its own, one after the other.
class C10dSummer {
 public:
  explicit C10dSummer(C10dLink& link) : link_(link), thread_([this] { run(); }) {}
  ~C10dSummer() {
    {
      const std::lock_guard lock(mutex_);
      is_closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  C10dSummer(const C10dSummer&) = delete;
  C10dSummer& operator=(const C10dSummer&) = delete;

  void put(std::vector<int> group, std::vector<at::Tensor> tensors) {
    {
      const std::lock_guard lock(mutex_);
      sums_.emplace_back(std::move(group), std::move(tensors));
    }
    changed_.notify_all();
  }

  /// Waits until all sums are done. @throws what one of them has thrown
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return sums_.empty() || failure_; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_closing_ || !sums_.empty(); });
      if (sums_.empty() || failure_) return;
      auto& [group, tensors] = sums_.front();  // stays where it is while others are put behind it
      lock.unlock();
      std::exception_ptr failure;
      try {
        sum_over_group(link_, group, tensors);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) failure_ = failure;
      else sums_.pop_front();
      changed_.notify_all();
      if (failure_) return;
    }
  }

  C10dLink& link_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::pair<std::vector<int>, std::vector<at::Tensor>>> sums_;
  std::exception_ptr failure_;
  bool is_closing_ = false;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace pipedream
