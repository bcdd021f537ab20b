#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/commands.hpp"
#include "cli/model_data.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/core/log.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/data/loader.hpp"
#include "pipedream/model/precision.hpp"
#include "pipedream/profiler/profiler.hpp"
#include "pipedream/runtime/memory_meter.hpp"
#include "pipedream/runtime/optimizer.hpp"

namespace pipedream::cli {
namespace {

struct ProfileSettings {
  std::string model = "vgg11";
  std::string data, loss;
  std::int64_t micro_batch = 32;
  ProfilerOptions profiler;
  bool no_split = false;
  bool json = false;
  std::string optimizer = "sgd", precision = "float32";
  std::string output;
};

// A live line on a terminal, nothing elsewhere: the table at the end says it all.
void show_progress(int done, int total) {
  if (verbosity() == Verbosity::Quiet || isatty(STDERR_FILENO) == 0) return;
  constexpr int kWidth = 30;
  const int filled = done * kWidth / total;
  fmt::print(stderr, "\rmeasuring [{}{}] {}/{}", std::string(static_cast<std::size_t>(filled), '='),
             std::string(static_cast<std::size_t>(kWidth - filled), ' '), done, total);
}
void end_progress() {
  if (verbosity() != Verbosity::Quiet && isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r{:60}\r", "");
}

std::string milliseconds(double value) { return fmt::format("{:.3f}", value); }
std::string milliseconds(std::optional<double> value) { return value ? milliseconds(*value) : "-"; }
std::string bytes(std::int64_t value) { return format_bytes(static_cast<double>(value)); }
std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

using TableRow = std::vector<std::string>;

TableRow layer_row(const LayerProfile& layer, const LayerSpread& spread) {
  return {layer.name,
          layer.description,
          milliseconds(layer.forward_ms),
          percent(spread.forward),
          milliseconds(layer.backward_ms),
          percent(spread.backward),
          milliseconds(layer.backward_input_ms),
          milliseconds(layer.backward_weight_ms),
          milliseconds(layer.update_ms),
          bytes(layer.total_output_bytes()),
          bytes(layer.stashed_bytes.value_or(0)),
          bytes(layer.parameter_bytes)};
}

// Sums; tied parameters count in each of their layers, as in the profile.
TableRow total_row(const Profile& profile) {
  LayerProfile total;
  total.name = "total";
  total.stashed_bytes = 0;
  for (const LayerProfile& layer : profile.layers) {
    total.forward_ms += layer.forward_ms;
    total.backward_ms += layer.backward_ms;
    total.update_ms += layer.update_ms;
    total.parameter_bytes += layer.parameter_bytes;
    *total.stashed_bytes += layer.stashed_bytes.value_or(0);
    total.output_bytes.push_back(layer.total_output_bytes());
    if (layer.backward_input_ms) total.backward_input_ms = total.backward_input_ms.value_or(0) + *layer.backward_input_ms;
    if (layer.backward_weight_ms) total.backward_weight_ms = total.backward_weight_ms.value_or(0) + *layer.backward_weight_ms;
  }
  TableRow row = layer_row(total, {});
  row[3] = row[5] = "";
  return row;
}

// Texts to the left, numbers to the right.
void print_rows(const std::vector<TableRow>& rows) {
  std::vector<std::size_t> widths(rows[0].size());
  for (const TableRow& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  for (const TableRow& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c)
      line += c < 2 ? fmt::format("{:{}}  ", row[c], widths[c]) : fmt::format("{:>{}}  ", row[c], widths[c]);
    fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
}

void print_table(const Measurement& measurement) {
  std::vector<TableRow> rows = {
      {"layer", "", "forward ms", "spread", "backward ms", "spread", "inputs", "weights", "update", "output", "stashed", "parameters"}};
  for (std::size_t i = 0; i < measurement.spread.size(); ++i) rows.push_back(layer_row(measurement.profile.layers[i], measurement.spread[i]));
  rows.push_back(total_row(measurement.profile));
  print_rows(rows);
}

Measurement measure_settings(const ProfileSettings& settings) {
  if (settings.micro_batch < 1) throw UsageError(fmt::format("a micro-batch of {} samples", settings.micro_batch));
  prepare_process();
  const ModelAndData loaded = load_model_and_data(with_loss(settings.model, settings.loss), settings.data);
  if (loaded.train->size() < settings.micro_batch)
    throw UsageError(fmt::format("a micro-batch of {} samples, the data has {}", settings.micro_batch, loaded.train->size()));
  LoaderOptions loading;
  loading.micro_batch = settings.micro_batch;
  loading.seed = settings.profiler.seed;
  loading.prefetch = 0;
  const MicroBatch batch = Loader(loaded.train, loading).get(0, 0);
  ProfilerOptions options = settings.profiler;
  options.split = !settings.no_split;
  options.precision = parse_precision(settings.precision);
  options.progress = show_progress;
  if (settings.optimizer != "none") {
    options.optimizer = settings.optimizer;
    OptimizerOptions optimizer;
    optimizer.name = settings.optimizer;
    optimizer.momentum = settings.optimizer == "sgd" ? 0.9 : 0;
    options.make_update = [optimizer](const std::vector<at::Tensor>& parameters) { return make_update_step(optimizer, parameters); };
  }
  log_info("profiling {} on {}, micro-batch {}, {} side by side", settings.model, loaded.data_spec, settings.micro_batch, options.copies);
  Measurement measurement = measure(loaded.model, batch.tensors, batch.samples, options);
  end_progress();
  if (measurement.layers_ms < 0.9 * measurement.whole_ms)
    log_warning("times scatter: the medians of the layers add up to {:.0f} % of the whole; something else is using this machine",
                100 * measurement.layers_ms / measurement.whole_ms);
  return measurement;
}

void run_profile(const ProfileSettings& settings) {
  const Measurement measurement = measure_settings(settings);
  const std::string text = profile_to_json(measurement.profile);
  if (!settings.output.empty()) write_file(settings.output, text);
  if (settings.output == "-") return;
  if (settings.json) {
    fmt::print("{}{}", text, text.empty() || text.back() != '\n' ? "\n" : "");
    return;
  }
  print_table(measurement);
  fmt::print(
      "\n{} samples in {} forward and backward, whole model; the layers add up to {} (ratio {:.3f}); medians of {} iterations, spread = "
      "interquartile range / median\n",
      settings.micro_batch, format_ms(measurement.whole_ms), format_ms(measurement.layers_ms), measurement.layers_ms / measurement.whole_ms,
      measurement.iterations);
}

}  // namespace

Profile measure_model(const ModelToMeasure& request) {
  ProfileSettings settings;
  settings.model = request.model;
  settings.data = request.data;
  settings.loss = request.loss;
  settings.micro_batch = request.micro_batch;
  settings.optimizer = request.optimizer == "sgd-plain" ? "sgd" : request.optimizer;
  return measure_settings(settings).profile;
}

void add_profile(CLI::App& app) {
  auto settings = std::make_shared<ProfileSettings>();
  CLI::App* command = app.add_subcommand("profile", "Measures a model layer by layer and writes a profile");
  command->add_option("--model", settings->model, "NAME or NAME:key=value,... (pipedream list models)")->capture_default_str();
  command->add_option("--data", settings->data, "data set (pipedream list data); default: synthetic, of the model's natural size");
  command->add_option("--loss", settings->loss, "of a model file that has none: cross-entropy (default), nll, mse, l1, bce");
  command->add_option("--micro-batch", settings->micro_batch, "samples per micro-batch")->capture_default_str();
  command->add_option("--iterations", settings->profiler.iterations, "measured iterations")->capture_default_str();
  command->add_option("--seconds", settings->profiler.seconds, "begin no iteration after this time")->capture_default_str();
  command->add_option("--copies", settings->profiler.copies, "copies side by side: as many as ranks will share the machine")->capture_default_str();
  command->add_option("--threads", settings->profiler.threads, "threads of each copy inside an operator; 0: as torch chooses")->capture_default_str();
  command->add_option("--optimizer", settings->optimizer, "whose update is measured: sgd (with momentum), adam, adamw, none")->capture_default_str();
  command->add_option("--precision", settings->precision, "of the layers: float32 or bfloat16")->capture_default_str();
  command->add_option("--device", settings->profiler.device, "what the profile calls the device")->capture_default_str();
  command->add_option("--seed", settings->profiler.seed, "of weights and order of the data")->capture_default_str();
  command->add_flag("--no-split", settings->no_split, "do not tell the parts of the backward apart; half the time");
  command->add_flag("--json", settings->json, "print the profile instead of a table");
  command->add_option("-o,--output", settings->output, "file to write the profile to");
  command->footer(
      "Examples:\n  pipedream profile --model vgg11 --data fashion-mnist --micro-batch 64 --copies 2 -o vgg11.json\n  pipedream profile --model "
      "gpt:blocks=6,width=256 --json");
  command->callback([settings] { run_profile(*settings); });
}

}  // namespace pipedream::cli
