#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "pipedream/comm/c10d_link.hpp"

/// Internal to pipedream/comm.
namespace pipedream {

/// Sends of one edge on their way to one rank: keeps their tensors until they have left.
class C10dOutbox {
 public:
  explicit C10dOutbox(C10dLink& link) : link_(link), thread_([this] { run(); }) {}
  ~C10dOutbox() {
    {
      const std::lock_guard lock(mutex_);
      is_closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  C10dOutbox(const C10dOutbox&) = delete;
  C10dOutbox& operator=(const C10dOutbox&) = delete;

  /// The works of one message; they hold its tensors.
  void put(std::vector<C10dLink::Work> message) {
    {
      const std::lock_guard lock(mutex_);
      messages_.push_back(std::move(message));
    }
    changed_.notify_all();
  }

  /// Waits until fewer than `bound` messages are on their way. False if they have not left within the timeout.
  [[nodiscard]] bool wait_for_room(std::size_t bound, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return messages_.size() < bound || has_failed_; }) && !has_failed_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_closing_ || !messages_.empty(); });
      if (messages_.empty()) return;
      std::vector<C10dLink::Work> works = messages_.front();
      lock.unlock();
      bool done = true;
      for (const auto& work : works) done = done && link_.wait_patiently(work);
      works.clear();
      lock.lock();
      messages_.pop_front();
      has_failed_ = has_failed_ || !done;
      changed_.notify_all();
      if (has_failed_) messages_.clear();
    }
  }

  C10dLink& link_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::vector<C10dLink::Work>> messages_;
  bool is_closing_ = false, has_failed_ = false;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace pipedream
