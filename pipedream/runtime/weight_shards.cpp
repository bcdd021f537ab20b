#include "pipedream/runtime/weight_shards.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

MessageKey gradient_key(int server, int micro_batch) { return {server, kWeightServer, micro_batch, true}; }
MessageKey weights_key(int server, int micro_batch) { return {server, kWeightServer, micro_batch, false}; }

at::Tensor number(std::int64_t value) { return at::full({1}, value, at::kLong); }

}  // namespace

/// Where the parameters lie in flat tensors, one a type.
class WeightShards::Layout {
 public:
  explicit Layout(const std::vector<at::Tensor>& parameters) {
    std::map<at::ScalarType, std::size_t> of_type;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto [found, is_new] = of_type.emplace(parameters[i].scalar_type(), types_.size());
      if (is_new) types_.push_back({parameters[i].scalar_type(), {}, 0});
      types_[found->second].parameters.push_back(i);
      types_[found->second].size += parameters[i].numel();
    }
  }

  [[nodiscard]] std::vector<at::Tensor> flatten(const std::vector<at::Tensor>& tensors) const {
    std::vector<at::Tensor> flat;
    for (const auto& type : types_) {
      std::vector<at::Tensor> parts;
      for (const std::size_t i : type.parameters) parts.push_back(tensors[i].detach().reshape({-1}));
      flat.push_back(at::cat(parts));
    }
    return flat;
  }

  void unflatten(const std::vector<at::Tensor>& flat, const std::vector<at::Tensor>& tensors) const {
    for (std::size_t type = 0; type < types_.size(); ++type) {
      std::int64_t at = 0;
      for (const std::size_t i : types_[type].parameters) {
        tensors[i].copy_(flat[type].slice(0, at, at + tensors[i].numel()).view(tensors[i].sizes()));
        at += tensors[i].numel();
      }
    }
  }

  /// The part of flat tensors that shard `shard` of `shards` keeps.
  [[nodiscard]] std::vector<at::Tensor> part(const std::vector<at::Tensor>& flat, std::size_t shard, std::size_t shards) const {
    std::vector<at::Tensor> result;
    const auto s = static_cast<std::int64_t>(shard), count = static_cast<std::int64_t>(shards);
    for (std::size_t type = 0; type < types_.size(); ++type)
      result.push_back(flat[type].slice(0, types_[type].size * s / count, types_[type].size * (s + 1) / count));
    return result;
  }

 private:
  struct Type {
    at::ScalarType type;
    std::vector<std::size_t> parameters;
    std::int64_t size;
  };
  std::vector<Type> types_;
};

/// This rank's shard, with the steps of all replicas on it.
class WeightShards::Shard {
 public:
  Shard(std::vector<at::Tensor> weights, const OptimizerOptions& options) : optimizer_(make_optimizer(options)) {
    for (const auto& tensor : weights) weights_.push_back(tensor.clone());
  }

  /// Steps, and returns the weights after it with their version, in a form that can be sent.
  std::vector<at::Tensor> apply(int micro_batch, const std::vector<at::Tensor>& gradients, std::int64_t read_version, double learning_rate) {
    const std::lock_guard lock(mutex_);
    optimizer_->step(weights_, weights_, gradients, learning_rate, 1);
    ++version_;
    applied_.push_back({micro_batch, read_version});
    return copy();
  }
  [[nodiscard]] std::vector<at::Tensor> read() {
    const std::lock_guard lock(mutex_);
    return copy();
  }
  [[nodiscard]] std::vector<AppliedGradient> take_applied() {
    const std::lock_guard lock(mutex_);
    return std::exchange(applied_, {});
  }

 private:
  [[nodiscard]] std::vector<at::Tensor> copy() const {
    std::vector<at::Tensor> result;
    for (const auto& tensor : weights_) result.push_back(tensor.clone());
    result.push_back(number(version_));
    return result;
  }

  std::mutex mutex_;  // guards all below
  std::vector<at::Tensor> weights_;
  std::unique_ptr<Optimizer> optimizer_;
  std::int64_t version_ = 0;
  std::vector<AppliedGradient> applied_;
};

struct WeightShards::State {
  State(Transport& transport, std::vector<int> ranks, const std::vector<at::Tensor>& parameters, const OptimizerOptions& optimizer, int limit,
        ThreadScope scope)
      : group(std::move(ranks)),
        own(static_cast<std::size_t>(std::find(group.begin(), group.end(), transport.rank()) - group.begin())),
        in_flight(static_cast<std::size_t>(limit)),
        thread_scope(std::move(scope)),
        layout(parameters),
        copy(layout.flatten(parameters)),
        versions(group.size(), 0),
        shard(layout.part(copy, own, group.size()), optimizer),
        requests(transport.for_another_thread()) {
    PD_CHECK(own < group.size() && limit >= 1);
    for (std::size_t peer = 0; peer < group.size(); ++peer) services.push_back(peer == own ? nullptr : transport.for_another_thread());
  }

  /// Serves one peer's gradients of a pass, on a thread of its own.
  void serve(std::size_t peer) {
    try {
      const std::shared_ptr<void> scope = thread_scope ? thread_scope() : nullptr;
      const at::NoGradGuard no_grad;
      at::set_num_threads(1);
      Transport& transport = *services[peer];
      const int stride = static_cast<int>(group.size());
      for (int i = static_cast<int>(peer); i < micro_batches; i += stride) {
        std::vector<at::Tensor> gradients = transport.receive(group[peer], gradient_key(group[own], i));
        if (i + stride < micro_batches) transport.post_receive(group[peer], gradient_key(group[own], i + stride));
        const auto read_version = gradients.back().item<std::int64_t>();
        gradients.pop_back();
        transport.send(group[peer], weights_key(group[own], i), shard.apply(first + i, gradients, read_version, learning_rate(i)), 0);
      }
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
      }
      requests->abort(error.what());  // the compute thread may be waiting for something else
    }
  }

  /// Takes the weights that a shard has answered with, its version among them.
  void install(std::size_t server, std::vector<at::Tensor> weights) {
    versions[server] = weights.back().item<std::int64_t>();
    weights.pop_back();
    const auto target = layout.part(copy, server, group.size());
    for (std::size_t type = 0; type < target.size(); ++type) target[type].copy_(weights[type]);
  }

  void collect_oldest() {
    const int micro_batch = under_way.front();
    under_way.pop_front();
    for (std::size_t server = 0; server < group.size(); ++server)
      if (server != own) install(server, requests->receive(group[server], weights_key(group[server], micro_batch)));
  }

  std::vector<int> group;
  std::size_t own;
  std::size_t in_flight;
  ThreadScope thread_scope;
  Layout layout;
  std::vector<at::Tensor> copy;        // what this replica works with, flat
  std::vector<std::int64_t> versions;  // of each shard's part of it
  Shard shard;
  std::unique_ptr<Transport> requests;  // of the compute thread
  std::vector<std::unique_ptr<Transport>> services;
  std::deque<int> under_way;         // micro-batches whose exchange has not come back
  int first = 0, micro_batches = 0;  // of the pass, in the order of the data
  std::function<double(int)> learning_rate;
  std::mutex failure_mutex;  // guards failure
  std::exception_ptr failure;
  std::vector<std::jthread> threads;
};

WeightShards::WeightShards(Transport& transport, std::vector<int> group, const std::vector<at::Tensor>& parameters, const OptimizerOptions& optimizer,
                           int in_flight, ThreadScope thread_scope)
    : state_(std::make_unique<State>(transport, std::move(group), parameters, optimizer, in_flight, std::move(thread_scope))) {}

WeightShards::~WeightShards() {
  if (!state_->threads.empty()) abandon("the run was given up");
}

void WeightShards::begin_pass(int micro_batches, std::function<double(int micro_batch)> learning_rate) {
  State& state = *state_;
  state.micro_batches = micro_batches;
  state.learning_rate = std::move(learning_rate);
  for (std::size_t peer = 0; peer < state.group.size(); ++peer)
    if (peer != state.own) state.threads.emplace_back([&state, peer] { state.serve(peer); });
}

void WeightShards::push(int micro_batch, const std::vector<at::Tensor>& gradients) {
  State& state = *state_;
  const at::NoGradGuard no_grad;
  const std::vector<std::int64_t> read = state.versions;  // what this gradient was worked out with
  if (state.under_way.size() == state.in_flight) state.collect_oldest();
  const std::vector<at::Tensor> flat = state.layout.flatten(gradients);
  for (std::size_t server = 0; server < state.group.size(); ++server) {
    auto part = state.layout.part(flat, server, state.group.size());
    if (server == state.own) {
      state.install(server, state.shard.apply(state.first + micro_batch, part, read[server], state.learning_rate(micro_batch)));
      continue;
    }
    part.push_back(number(read[server]));
    state.requests->post_receive(state.group[server], weights_key(state.group[server], micro_batch));
    state.requests->send(state.group[server], gradient_key(state.group[server], micro_batch), std::move(part), 0);
  }
  state.under_way.push_back(micro_batch);
}

void WeightShards::read(const std::vector<at::Tensor>& parameters) const {
  const at::NoGradGuard no_grad;
  state_->layout.unflatten(state_->copy, parameters);
}

std::vector<AppliedGradient> WeightShards::end_pass() {
  State& state = *state_;
  const at::NoGradGuard no_grad;
  while (!state.under_way.empty()) state.collect_oldest();
  state.threads.clear();  // joins them: everybody's gradients are in this shard
  if (state.failure) std::rethrow_exception(state.failure);
  const int last = state.micro_batches;  // beyond all exchanges
  for (std::size_t server = 0; server < state.group.size(); ++server)
    if (server != state.own) state.requests->send(state.group[server], weights_key(state.group[state.own], last), state.shard.read(), 0);
  for (std::size_t server = 0; server < state.group.size(); ++server)
    state.install(server,
                  server == state.own ? state.shard.read() : state.requests->receive(state.group[server], weights_key(state.group[server], last)));
  state.first += state.micro_batches;
  return state.shard.take_applied();
}

void WeightShards::abandon(const std::string& reason) {
  if (!state_->threads.empty()) state_->requests->abort(reason);
  state_->threads.clear();
}

}  // namespace pipedream
