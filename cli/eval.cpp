#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "cli/commands.hpp"
#include "cli/model_data.hpp"
#include "cli/weights.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/json.hpp"
#include "pipedream/core/log.hpp"
#include "pipedream/data/loader.hpp"
#include "pipedream/runtime/evaluation.hpp"
#include "pipedream/runtime/memory_meter.hpp"

namespace pipedream::cli {
namespace {

struct EvalFlags {
  std::string run, checkpoint, model, loss, data;
  int micro_batch = 0;
  bool json = false;
};

std::filesystem::path checkpoint_file(const EvalFlags& flags) {
  std::filesystem::path path = flags.checkpoint.empty() ? std::filesystem::path(flags.run) / "checkpoints" : std::filesystem::path(flags.checkpoint);
  if (std::filesystem::is_directory(path)) path /= "final.safetensors";
  if (!std::filesystem::exists(path))
    throw InputError(path.string(), "there is no such checkpoint", "a run writes one at its end: pipedream train --run DIR");
  return path;
}

void run_eval(const EvalFlags& flags) {
  if (flags.run.empty() == flags.checkpoint.empty()) throw UsageError("give either --run or --checkpoint", "pipedream eval --run DIR");
  prepare_process();
  const auto path = checkpoint_file(flags);
  Metadata metadata = read_metadata(path);
  if (!flags.model.empty()) metadata["model"] = flags.model;
  if (!flags.data.empty()) metadata["data"] = flags.data;
  if (metadata["model"].empty()) throw UsageError(fmt::format("{} does not say which model it belongs to", path.string()), "add --model and --data");
  ModelAndData loaded = load_model_and_data(with_loss(metadata["model"], flags.loss), metadata["data"]);
  start_from_weights(loaded.model, path);
  const Layers layers = create_layers(loaded.model, 0);
  const int micro_batch = flags.micro_batch > 0 ? flags.micro_batch : std::max(1, std::atoi(metadata["micro_batch"].c_str()));
  if (!loaded.test) throw UsageError(fmt::format("the data set {} has no test data", loaded.data_spec));
  LoaderOptions options;
  options.micro_batch = micro_batch;
  options.shuffle = false;
  Loader loader(loaded.test, options);
  const auto start = std::chrono::steady_clock::now();
  const EvaluationResult result = evaluate(loaded.model, layers, loader.micro_batches(), [&](std::int64_t i) {
    MicroBatch batch = loader.get(0, i);
    return MicroBatchData{std::move(batch.tensors), std::move(batch.samples)};
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (flags.json) {
    Json json{{"schema", "pipedream.evaluation/1"}, {"samples", result.samples}, {"loss", result.loss}};
    json["accuracy"] = result.accuracy ? Json(*result.accuracy) : Json(nullptr);
    fmt::print("{}\n", json.dump(2));
    return;
  }
  fmt::print("{} on the test data of {}: loss {:.4f}{}, {} samples, {:.0f} samples/s\n", metadata["model"], loaded.data_spec, result.loss,
             result.accuracy ? fmt::format(", accuracy {:.2f} %", 100 * *result.accuracy) : "", result.samples,
             static_cast<double>(result.samples) / seconds);
}

}  // namespace

void add_eval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command = app.add_subcommand("eval", "run a checkpoint forward over the test data");
  command->add_option("--run", flags->run, "run directory");
  command->add_option("--checkpoint", flags->checkpoint, "a .safetensors file, or a folder with final.safetensors");
  command->add_option("--model", flags->model, "instead of what the checkpoint says");
  command->add_option("--loss", flags->loss, "of a model file that has none: cross-entropy (default), nll, mse, l1, bce");
  command->add_option("--data", flags->data, "instead of what the checkpoint says");
  command->add_option("--micro-batch", flags->micro_batch, "samples at once; default: as in training")->check(CLI::PositiveNumber);
  command->add_flag("--json", flags->json, "print the value as JSON");
  command->footer("Examples:\n  pipedream eval --run r\n  pipedream eval --checkpoint weights.safetensors --model lenet --data fashion-mnist");
  command->callback([flags] { run_eval(*flags); });
}

}  // namespace pipedream::cli
