#include "cli/inspect_model.hpp"

#include <fmt/format.h>

#include "pipedream/core/error.hpp"

#ifdef PIPEDREAM_WITH_TORCH
#include "pipedream/model/import/import_model.hpp"
#endif

namespace pipedream::cli {

bool is_model_spec(const std::string& spec) {
  const std::string file = spec.substr(0, spec.find(':'));
  return file.ends_with(".pt2") || file.ends_with(".pt") || file.ends_with(".pth");
}

#ifdef PIPEDREAM_WITH_TORCH
namespace {

std::string names_of(const Program& program, const std::vector<int>& ids) {
  std::string text;
  for (const int id : ids) text += (text.empty() ? "" : ", ") + program.values.at(static_cast<std::size_t>(id)).name;
  return text;
}

Json inputs_of(const Program& program) {
  Json result = Json::array();
  for (const ProgramInput& input : program.inputs) {
    const auto& type = program.values.at(static_cast<std::size_t>(input.value)).type;
    result.push_back({{"input", input.name}, {"type", type ? print_type(*type) : "unknown"}});
  }
  return result;
}

Json layers_of(const LayeredProgram& layered) {
  Json result = Json::array();
  for (const ProgramLayer& layer : layered.layers) {
    std::int64_t parameters = 0;
    for (const int id : layer.parameters) {
      const auto& type = layered.program.values.at(static_cast<std::size_t>(id)).type;
      std::int64_t elements = type ? 1 : 0;
      if (type) {
        for (const Dimension& size : type->sizes) elements *= size.value;
      }
      parameters += elements;
    }
    result.push_back({{"layer", layer.name},
                      {"class", layer.type.substr(layer.type.rfind('.') + 1)},
                      {"operators", layer.steps.size()},
                      {"parameters", parameters},
                      {"reads", names_of(layered.program, layer.inputs)},
                      {"gives", names_of(layered.program, layer.outputs)}});
  }
  return result;
}

}  // namespace

Json inspect_model(const std::string& spec) {
  const auto [file, options] = import_options_of(spec);
  const ModelFileReport report = inspect_model_file(file, options);
  const Program& program = report.layered.program;
  Json result = {{"kind", "model"}, {"written by", program.producer}};
  result["batch"] = !report.batch.symbol.empty() ? "any"
                    : report.batch.fixed         ? fmt::format("{} only: {}", report.batch.example, report.batch.fixed_by)
                    : report.batch.example > 0   ? fmt::format("any (exported with {})", report.batch.example)
                                                 : "unknown";
  result["loss"] = report.has_loss ? "in the file" : "added: " + (options.loss.empty() ? "cross-entropy" : options.loss);
  result["weights"] = report.has_values ? "in the file" : "none: drawn from the seed, by class of module";
  result["parameters"] = report.parameter_count;
  result["inputs"] = inputs_of(program);
  Json parameters = Json::array();
  for (const auto& [key, type] : report.parameters) parameters.push_back({{"parameter", key}, {"type", type}});
  result["state"] = parameters;
  result["layers"] = layers_of(report.layered);
  result["layer count"] = report.layered.layers.size();
  for (const std::string& note : report.layered.notes) result["notes"].push_back(note);
  for (const ImportProblem& problem : report.problems) {
    result["will not work"].push_back(
        {{"where", problem.place.empty() ? "the program" : problem.place}, {"what", problem.what}, {"remedy", problem.remedy}});
  }
  return result;
}

#else

Json inspect_model(const std::string& spec) {
  throw UsageError(fmt::format("{}: this program was built without torch, which models need", spec),
                   "build it with libtorch: cmake --preset release");
}

#endif

}  // namespace pipedream::cli
