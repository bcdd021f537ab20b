#include "pipedream/runtime/stage.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/model/precision.hpp"
#include "pipedream/runtime/evaluation.hpp"

namespace pipedream {

/// One layer of a micro-batch when layers are cut from each other (split backward).
struct Stage::LayerRun {
  Tensors inputs;  // leaves
  Tensors outputs;
  Tensors output_gradients;  // set by the part for inputs, read by the part for weights
};

/// A micro-batch between its forward and the end of its backward.
struct Stage::Flight {
  VersionStore::Slot* slot = nullptr;
  std::int64_t version = 0;
  MicroBatchInput input;                           // activations are leaves once run with gradient
  std::map<CrossingTensor, at::Tensor> crossing;   // outputs that other chunks read, with their graph
  std::map<CrossingTensor, at::Tensor> gradients;  // what came back for them
  std::map<int, Tensors> input_gradients;          // by source chunk
  at::Tensor loss;
  std::int64_t right = 0, predictions = 0;
  bool training = false, has_graph = false, users_counted = false;
  std::vector<LayerRun> runs;  // split backward only
};

namespace {

bool carries_gradient(const at::Tensor& tensor) { return tensor.defined() && at::isFloatingType(tensor.scalar_type()); }

/// Tells of a gradient that autograd has added to its parameter.
class GradientHook final : public torch::autograd::FunctionPostHook {
 public:
  GradientHook(std::shared_ptr<std::function<void(std::size_t)>> call, std::size_t parameter) : call_(std::move(call)), parameter_(parameter) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) override {
    if (*call_) (*call_)(parameter_);
    return outputs;
  }

 private:
  std::shared_ptr<std::function<void(std::size_t)>> call_;
  std::size_t parameter_;
};

void add_to(at::Tensor& sum, const at::Tensor& term) {
  if (!term.defined()) return;
  sum = sum.defined() ? sum.add(term) : term;
}

}  // namespace

Stage::Stage(const Model& model, const StageGraph& graph, int chunk, const StageOptions& options)
    : model_(model),
      graph_(graph),
      chunk_(chunk),
      options_(options),
      versions_(model, graph.chunks[static_cast<std::size_t>(chunk)].nodes, options.seed, options.slots),
      optimizer_(make_optimizer(options.optimizer)) {}

Stage::~Stage() = default;

void Stage::watch_gradients(std::function<void(std::size_t parameter)> call) {
  if (!watcher_) {
    watcher_ = std::make_shared<std::function<void(std::size_t)>>();
    for (auto& slot : versions_.slots())
      for (std::size_t i = 0; i < slot.parameters.size(); ++i) {
        if (!slot.parameters[i].requires_grad()) continue;
        auto accumulator = torch::autograd::impl::grad_accumulator(slot.parameters[i]);
        accumulator->add_post_hook(std::make_unique<GradientHook>(watcher_, i));
        accumulators_.push_back(std::make_shared<decltype(accumulator)>(accumulator));  // libtorch 2.15 holds nodes by intrusive_ptr
      }
  }
  *watcher_ = std::move(call);
}

bool Stage::has_gradients_beside(std::int64_t version) {
  for (auto& slot : versions_.slots())
    if (slot.version != version)
      for (const auto& parameter : slot.parameters)
        if (parameter.grad().defined()) return true;
  return false;
}

Stage::Flight& Stage::flight(int micro_batch) {
  const auto found = flights_.find(micro_batch);
  PD_CHECK(found != flights_.end(), "micro-batch {} is not in flight in stage {}", micro_batch, chunk_);
  return *found->second;
}
const Stage::Flight& Stage::flight(int micro_batch) const { return const_cast<Stage*>(this)->flight(micro_batch); }

void Stage::run_layers(Flight& flight, bool with_gradient, bool update_buffers) {
  const at::AutoGradMode grad_mode(with_gradient);
  const ForwardContext context{flight.training, options_.seed, &flight.input.samples, update_buffers, options_.precision};
  const bool cut = options_.split_backward && with_gradient;
  const auto& nodes = layers().nodes;
  std::map<CrossingTensor, at::Tensor> values;
  for (auto& [source, tensors] : flight.input.activations) {
    const auto& names = graph_.edge(source, chunk_).tensors;
    PD_CHECK(names.size() == tensors.size(), "stage {} got {} tensors from stage {}, {} are expected", chunk_, tensors.size(), source, names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (with_gradient && carries_gradient(tensors[i])) tensors[i] = tensors[i].detach().requires_grad_(true);
      values[names[i]] = tensors[i];
    }
  }
  flight.runs.clear();
  // A value is let go after its last reader, so that a forward without gradient needs little memory.
  std::map<int, std::size_t> last_reader;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (const InputRef& ref : model_.nodes[static_cast<std::size_t>(nodes[i])].inputs)
      if (!ref.is_model_input()) last_reader[ref.layer] = i;
  for (const ChunkEdge& edge : graph_.edges)
    if (edge.source == chunk_)
      for (const CrossingTensor& crossing : edge.tensors) last_reader[crossing.layer] = nodes.size();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const LayerNode& node = model_.nodes[static_cast<std::size_t>(nodes[i])];
    Tensors inputs;
    for (const InputRef& ref : node.inputs) {
      if (ref.is_model_input()) inputs.push_back(flight.input.model_inputs[static_cast<std::size_t>(ref.model_input_index())]);
      else inputs.push_back(values.at({ref.layer, ref.output}));
    }
    if (cut)
      for (auto& input : inputs)
        if (input.requires_grad() && !input.is_leaf()) input = input.detach().requires_grad_(true);
    Tensors outputs = run_layer(*flight.slot->layers[static_cast<std::size_t>(nodes[i])], inputs, context, nodes[i] == model_.loss);
    if (cut) flight.runs.push_back({inputs, outputs, {}});
    for (std::size_t o = 0; o < outputs.size(); ++o) values[{nodes[i], static_cast<int>(o)}] = outputs[o];
    if (nodes[i] == model_.loss) flight.loss = outputs[0];
    if (nodes[i] == model_.prediction && !flight.training && model_.target >= 0)
      std::tie(flight.right, flight.predictions) = count_hits(outputs[0], flight.input.model_inputs[static_cast<std::size_t>(model_.target)]);
    for (const InputRef& ref : node.inputs)
      if (!ref.is_model_input() && last_reader[ref.layer] == i) values.erase({ref.layer, ref.output});
  }
  for (const ChunkEdge& edge : graph_.edges)
    if (edge.source == chunk_)
      for (const CrossingTensor& crossing : edge.tensors) flight.crossing[crossing] = values.at(crossing);
  flight.has_graph = with_gradient;
}

void Stage::forward(int micro_batch, std::int64_t version, MicroBatchInput input, bool training) {
  PD_CHECK(flights_.count(micro_batch) == 0, "micro-batch {} runs forward twice in stage {}", micro_batch, chunk_);
  for (const ChunkEdge& edge : graph_.edges)
    PD_CHECK(edge.target != chunk_ || input.activations.count(edge.source) == 1, "stage {} runs micro-batch {} without the activation from stage {}",
             chunk_, micro_batch, edge.source);
  auto made = std::make_unique<Flight>();
  Flight& flight = *made;
  flight.version = version;
  flight.input = std::move(input);
  flight.training = training;
  flight.slot = training ? &versions_.acquire(version) : &versions_.at(version);
  flight.users_counted = training;
  flights_.emplace(micro_batch, std::move(made));
  run_layers(flight, training && !options_.recompute, training);
  if (!training) {  // only the outputs are read from here on
    flight.input.activations.clear();
    flight.input.model_inputs.clear();
  } else if (!options_.recompute) {
    flight.input.model_inputs.clear();
  }
}

Tensors Stage::output_for(int micro_batch, int target) const {
  const Flight& from = flight(micro_batch);
  Tensors tensors;
  for (const CrossingTensor& crossing : graph_.edge(chunk_, target).tensors) tensors.push_back(from.crossing.at(crossing).detach());
  return tensors;
}

void Stage::add_output_gradient(int micro_batch, int target, const Tensors& gradients) {
  Flight& to = flight(micro_batch);
  const auto& names = graph_.edge(chunk_, target).tensors;
  PD_CHECK(names.size() == gradients.size(), "stage {} got {} gradients from stage {}, {} are expected", chunk_, gradients.size(), target,
           names.size());
  for (std::size_t i = 0; i < names.size(); ++i) add_to(to.gradients[names[i]], gradients[i]);
}

void Stage::gather_roots(const Flight& flight, double loss_scale, Tensors& roots, Tensors& gradients) const {
  for (const auto& [crossing, gradient] : flight.gradients) {
    const at::Tensor& root = flight.crossing.at(crossing);
    if (!gradient.defined() || !root.requires_grad()) continue;
    roots.push_back(root);
    gradients.push_back(gradient);
  }
  if (flight.loss.defined() && flight.loss.requires_grad()) {
    roots.push_back(flight.loss);
    gradients.push_back(at::full_like(flight.loss.detach(), loss_scale));
  }
}

void Stage::backward(int micro_batch, std::int64_t version, double loss_scale) {
  if (options_.split_backward) {
    backward_input(micro_batch, version, loss_scale);
    backward_weight(micro_batch, version);
    return;
  }
  Flight& run = flight(micro_batch);
  PD_CHECK(run.version == version, "the backward of micro-batch {} in stage {} wants weight version {}, its forward used {}", micro_batch, chunk_,
           version, run.version);
  if (!run.has_graph) run_layers(run, /*with_gradient=*/true, /*update_buffers=*/false);
  Tensors roots, gradients;
  gather_roots(run, loss_scale, roots, gradients);
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
  for (auto& [source, leaves] : run.input.activations) {
    Tensors& out = run.input_gradients[source];
    for (auto& leaf : leaves) {
      out.push_back(leaf.grad());
      leaf.mutable_grad().reset();
    }
  }
  if (run.loss.defined()) run.loss = run.loss.detach();
  run.crossing.clear();
  run.gradients.clear();
  run.input.activations.clear();
  run.input.model_inputs.clear();
  versions_.release(*run.slot);
  run.users_counted = false;
}

void Stage::backward_input(int micro_batch, std::int64_t version, double loss_scale) {
  Flight& run = flight(micro_batch);
  PD_CHECK(run.version == version, "the backward of micro-batch {} in stage {} wants weight version {}, its forward used {}", micro_batch, chunk_,
           version, run.version);
  if (!run.has_graph) run_layers(run, /*with_gradient=*/true, /*update_buffers=*/false);
  // Gradients by value; layers in reverse, so those of a value are complete when its maker is reached.
  std::map<CrossingTensor, at::Tensor> gradients = std::move(run.gradients);
  const auto& nodes = layers().nodes;
  for (std::size_t i = nodes.size(); i-- > 0;) {
    LayerRun& layer = run.runs[i];
    Tensors roots, root_gradients, leaves;
    for (std::size_t o = 0; o < layer.outputs.size(); ++o) {
      at::Tensor gradient;
      if (nodes[i] == model_.loss && o == 0) gradient = at::full_like(layer.outputs[0].detach(), loss_scale);
      else if (const auto found = gradients.find({nodes[i], static_cast<int>(o)}); found != gradients.end()) gradient = found->second;
      if (!gradient.defined() || !layer.outputs[o].requires_grad()) continue;
      roots.push_back(layer.outputs[o]);
      root_gradients.push_back(gradient);
    }
    std::vector<std::size_t> positions;
    for (std::size_t p = 0; p < layer.inputs.size(); ++p)
      if (layer.inputs[p].defined() && layer.inputs[p].requires_grad()) {
        positions.push_back(p);
        leaves.push_back(layer.inputs[p]);
      }
    const bool has_weights = !run.slot->layers[static_cast<std::size_t>(nodes[i])]->parameters().empty();
    if (!roots.empty() && !leaves.empty()) {
      const Tensors found =
          torch::autograd::grad(roots, leaves, root_gradients, /*retain_graph=*/has_weights, /*create_graph=*/false, /*allow_unused=*/true);
      const auto& refs = model_.nodes[static_cast<std::size_t>(nodes[i])].inputs;
      for (std::size_t k = 0; k < positions.size(); ++k) {
        const InputRef& ref = refs[positions[k]];
        if (!ref.is_model_input()) add_to(gradients[{ref.layer, ref.output}], found[k]);
      }
    }
    layer.inputs.clear();
    if (has_weights) {
      layer.outputs = std::move(roots);
      layer.output_gradients = std::move(root_gradients);
    } else {
      layer.outputs.clear();
    }
  }
  for (const ChunkEdge& edge : graph_.edges)
    if (edge.target == chunk_)
      for (const CrossingTensor& crossing : edge.tensors) run.input_gradients[edge.source].push_back(gradients[crossing]);
  if (run.loss.defined()) run.loss = run.loss.detach();
  run.crossing.clear();
  run.input.activations.clear();
  run.input.model_inputs.clear();
}

void Stage::backward_weight(int micro_batch, std::int64_t version) {
  Flight& run = flight(micro_batch);
  PD_CHECK(run.version == version);
  const auto& nodes = layers().nodes;
  for (std::size_t i = run.runs.size(); i-- > 0;) {
    LayerRun& layer = run.runs[i];
    if (layer.outputs.empty()) continue;
    Tensors parameters;
    for (const auto& [name, tensor] : run.slot->layers[static_cast<std::size_t>(nodes[i])]->parameters())
      if (tensor.requires_grad()) parameters.push_back(tensor);
    if (!parameters.empty())
      torch::autograd::backward(layer.outputs, layer.output_gradients, /*retain_graph=*/false, /*create_graph=*/false, parameters);
    layer = {};
  }
  run.runs.clear();
  versions_.release(*run.slot);
  run.users_counted = false;
}

Tensors Stage::input_gradient_for(int micro_batch, int source) const {
  const Flight& run = flight(micro_batch);
  const auto found = run.input_gradients.find(source);
  PD_CHECK(found != run.input_gradients.end(), "stage {} has no gradient of micro-batch {} for stage {}", chunk_, micro_batch, source);
  return found->second;
}

void Stage::forget(int micro_batch) { flights_.erase(micro_batch); }

Tensors Stage::take_gradients() {
  // Gradients lie at the parameters of the versions that the micro-batches used; usually that is one version.
  std::vector<VersionStore::Slot*> order;
  for (auto& slot : versions_.slots()) order.push_back(&slot);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->version < b->version; });
  Tensors sums(versions_.parameter_names().size());
  for (auto* slot : order)
    for (std::size_t i = 0; i < sums.size(); ++i) {
      at::Tensor& gradient = slot->parameters[i].mutable_grad();
      if (!gradient.defined()) continue;
      if (sums[i].defined()) sums[i].add_(gradient);
      else sums[i] = gradient;
      gradient.reset();
    }
  return sums;
}

void Stage::step(std::int64_t version, bool in_place, const Tensors& gradients, double learning_rate, double scale) {
  VersionStore::Slot& target = versions_.begin_step(version, in_place);
  optimizer_->step(versions_.at(version).parameters, target.parameters, gradients, learning_rate, scale);
  versions_.end_step(version, target);
}

void Stage::step_to(std::int64_t version, bool in_place, const std::function<void(const std::vector<at::Tensor>& parameters)>& write) {
  VersionStore::Slot& target = versions_.begin_step(version, in_place);
  write(target.parameters);
  versions_.end_step(version, target);
}

const std::vector<at::Tensor>& Stage::newest_parameters() {
  PD_CHECK(flights_.empty());
  return versions_.at(versions_.newest()).parameters;
}

double Stage::loss(int micro_batch) const {
  const Flight& run = flight(micro_batch);
  PD_CHECK(run.loss.defined(), "stage {} has no loss", chunk_);
  return run.loss.item<double>();
}

std::pair<std::int64_t, std::int64_t> Stage::hits(int micro_batch) const { return {flight(micro_batch).right, flight(micro_batch).predictions}; }

}  // namespace pipedream
