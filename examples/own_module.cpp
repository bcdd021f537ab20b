// A module of one's own, trained as a pipeline: any torch::nn::Module can be a layer, as it is.
#include <fmt/format.h>
#include <torch/nn/modules/linear.h>

#include "pipedream/data/data_set.hpp"
#include "pipedream/model/layers.hpp"
#include "pipedream/model/torch_module_layer.hpp"
#include "pipedream/runtime/loader_source.hpp"
#include "pipedream/runtime/trainer.hpp"

using namespace pipedream;

// [module]
struct Residual : torch::nn::Module {
  explicit Residual(std::int64_t width)
      : inner(register_module("inner", torch::nn::Linear(width, width))), outer(register_module("outer", torch::nn::Linear(width, width))) {}
  at::Tensor forward(const at::Tensor& x) { return x + outer(at::relu(inner(x))); }
  torch::nn::Linear inner, outer;
};

Model make_network() {
  ModelBuilder b("residual-network");
  const InputRef image = b.input("image", {1, 12, 12}), target = b.input("target", {}, at::kLong);
  InputRef x = b.add("stem", linear(144, 64), {b.add("flatten", flatten(), {image})});
  for (const char* name : {"block1", "block2", "block3"}) x = b.add(name, module<Residual>(std::int64_t{64}), {x});
  const InputRef logits = b.add("head", linear(64, 4), {x});
  return b.finish(b.add("loss", cross_entropy(), {logits, target}), logits, target);
}
// [module]

int main() {
  const Model model = make_network();
  const auto data = open_data("synthetic-images:samples=2048,size=12,classes=4");

  Plan plan;  // by hand here; make_plan(measure(...), ...) finds the fastest one
  plan.micro_batch = 32;
  plan.stages = {{"0", {"flatten", "stem", "block1"}, {0}, false, {}}, {"1", {"block2", "block3", "head", "loss"}, {1}, false, {}}};

  TrainOptions options;
  options.epochs = 2;
  options.optimizer.momentum = 0.9;
  TrainObserver silent;
  const auto sources =
      loader_sources(data->split(Split::Train, fields_of(model)), data->split(Split::Test, fields_of(model)), plan.micro_batch, /*seed=*/1);
  const TrainResult result = train(model, plan, options, sources, silent);
  for (const EpochResult& epoch : result.epochs)
    fmt::print("epoch {}: loss {:.3f}, accuracy on new images {:.1f} %\n", epoch.epoch + 1, epoch.train_loss, 100 * epoch.test_accuracy.value());
  return result.epochs.back().test_accuracy.value() > 0.95 ? 0 : 1;
}
