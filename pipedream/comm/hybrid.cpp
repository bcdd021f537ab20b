#include "pipedream/comm/hybrid.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "pipedream/comm/c10d.hpp"
#include "pipedream/comm/in_process.hpp"
#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

class HybridTransport final : public Transport {
 public:
  HybridTransport(std::shared_ptr<ControlGroup> control, std::unique_ptr<Transport> near, std::unique_ptr<Transport> far, std::set<int> here,
                  bool is_aside = false)
      : control_(std::move(control)), near_(std::move(near)), far_(std::move(far)), here_(std::move(here)), is_aside_(is_aside) {
    // A rank that waits for a thread of this process does not look at what other processes do.
    abort_call_ = control_->on_abort([near = near_, control = control_.get()] { near->abort(control->abort_reason()); });
  }
  ~HybridTransport() override { control_->forget_abort(abort_call_); }

  [[nodiscard]] int rank() const override { return far_->rank(); }
  [[nodiscard]] int num_ranks() const override { return far_->num_ranks(); }

  void send(int to, const MessageKey& key, Tensors tensors, int bounded) override {
    if (here_.count(to) == 0) return far_->send(to, key, std::move(tensors), bounded);
    in_memory([&] { near_->send(to, key, std::move(tensors), bounded); });
  }
  void post_receive(int from, const MessageKey& key) override {
    if (here_.count(from) == 0) far_->post_receive(from, key);
  }
  Tensors receive(int from, const MessageKey& key) override {
    if (here_.count(from) == 0) return far_->receive(from, key);
    Tensors tensors;
    if (!is_aside_) control_->set_doing(fmt::format("waiting for {} (rank {})", describe(key), from));
    in_memory([&] { tensors = near_->receive(from, key); });
    return tensors;
  }

  void all_reduce(const std::vector<int>& group, Tensors& tensors) override {
    if (!is_here(group)) return far_->all_reduce(group, tensors);
    in_memory([&] { near_->all_reduce(group, tensors); });
  }
  [[nodiscard]] bool sums_in_background() const override { return true; }
  /// Sums in memory take no time that were worth hiding, and a wait for the other replicas in the middle of a backward could be one for ever.
  void start_all_reduce(const std::vector<int>& group, const Tensors& tensors) override {
    if (is_here(group)) waiting_.emplace_back(group, tensors);
    else far_->start_all_reduce(group, tensors);
  }
  void finish_all_reduces() override {
    for (auto& [group, tensors] : std::exchange(waiting_, {})) all_reduce(group, tensors);
    far_->finish_all_reduces();
  }

  std::unique_ptr<Transport> for_another_thread() override {
    return std::make_unique<HybridTransport>(control_, near_->for_another_thread(), far_->for_another_thread(), here_, true);
  }
  void barrier() override { far_->barrier(); }
  std::vector<std::string> gather(std::string bytes) override { return far_->gather(std::move(bytes)); }
  void abort(const std::string& reason) override { far_->abort(reason); }
  [[nodiscard]] std::int64_t bytes_sent() const override { return near_->bytes_sent() + far_->bytes_sent(); }

 private:
  [[nodiscard]] bool is_here(const std::vector<int>& group) const {
    return std::all_of(group.begin(), group.end(), [this](int rank) { return here_.count(rank) > 0; });
  }

  /// A wait in memory that fails ends the run for all processes.
  template <typename Call>
  void in_memory(const Call& call) {
    try {
      call();
    } catch (const RankError& error) {
      control_->check_alive();
      throw RankError(control_->abort(fmt::format("{}\n{}", error.what(), control_->describe_ranks())), error.hint());
    }
  }

  std::shared_ptr<ControlGroup> control_;
  std::shared_ptr<Transport> near_;  // shared with the call at the end of the run
  std::unique_ptr<Transport> far_;
  std::set<int> here_;
  bool is_aside_;  // of a thread beside the rank's own, which what the rank is doing does not follow
  std::size_t abort_call_ = 0;
  std::vector<std::pair<std::vector<int>, Tensors>> waiting_;  // sums in memory that were started
};

}  // namespace

std::vector<TransportFactory> make_hybrid_transports(const std::vector<std::shared_ptr<ControlGroup>>& groups, const std::string& backend) {
  std::vector<TransportFactory> factories;
  if (groups.size() == 1) {
    factories.emplace_back([group = groups[0], backend] { return make_c10d_transport(group, backend); });
    return factories;
  }
  std::set<int> here;
  for (const auto& group : groups) here.insert(group->rank());
  const auto in_process = make_in_process_factories(groups[0]->world_size(), groups[0]->deadline(), nullptr);
  for (const auto& group : groups)
    factories.emplace_back([group, backend, near = in_process[static_cast<std::size_t>(group->rank())], here] {
      auto far = make_c10d_transport(group, backend);
      return std::make_unique<HybridTransport>(group, near(), std::move(far), here);
    });
  return factories;
}

}  // namespace pipedream
