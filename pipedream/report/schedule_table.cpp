#include "pipedream/report/schedule_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "pipedream/core/json.hpp"
#include "pipedream/core/units.hpp"

namespace pipedream {

std::string figures_text(const Schedule& schedule, const SimulationResult& result) {
  int activations = 0, versions = 1;
  for (const RankFigures& rank : result.ranks) {
    activations = std::max(activations, rank.peak_activations);
    versions = std::max(versions, rank.peak_versions);
  }
  return fmt::format("makespan {} ms, {} ms per micro-batch in steady state, bubble {}; at most {} {} and {} weight version{} on a rank\n",
                     format_number(result.makespan_ms, 6), format_number(result.period_ms, 5), format_share(result.bubble), activations,
                     schedule.slices > 1                            ? "slices"
                     : schedule.num_chunks() > schedule.num_ranks() ? "chunk activations"
                                                                    : "activations",
                     versions, versions == 1 ? "" : "s");
}

Table rank_table(const SimulationResult& result) {
  const bool with_memory =
      std::any_of(result.ranks.begin(), result.ranks.end(), [](const RankFigures& rank) { return rank.peak_memory_bytes >= 1024; });
  std::vector<std::string> header{"rank",         "busy ms",       "idle ms",     "in span", "for activation",
                                  "for gradient", "for reduction", "activations", "versions"};
  if (with_memory) header.emplace_back("memory");
  Table table(header);
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    const RankFigures& figures = result.ranks[rank];
    std::vector<std::string> row{fmt::format("{}", rank),
                                 format_number(figures.busy_ms, 6),
                                 format_number(figures.makespan_idle_ms, 6),
                                 format_number(figures.span_idle_ms, 6),
                                 format_number(figures.wait_activation_ms, 5),
                                 format_number(figures.wait_gradient_ms, 5),
                                 format_number(figures.wait_reduction_ms, 5),
                                 fmt::format("{}", figures.peak_activations),
                                 fmt::format("{}", figures.peak_versions)};
    if (with_memory) row.push_back(format_bytes(figures.peak_memory_bytes));
    table.add_row(std::move(row));
  }
  return table;
}

Table link_table(const SimulationResult& result) {
  Table table({"link", "messages", "bytes", "busy ms"});
  for (const LinkFigures& link : result.links)
    if (link.bytes > 0)
      table.add_row(
          {fmt::format("{} -> {}", link.from, link.to), format_count(link.messages), format_bytes(link.bytes), format_number(link.busy_ms, 5)});
  return table;
}

std::string critical_path_text(const SimulationResult& result) {
  if (result.critical_path.empty()) return {};
  std::map<int, double> per_rank;
  double computed = 0, covered = 0;
  for (const TimedAction& timed : result.critical_path) {
    const double begin = std::max(covered, timed.start_ms);
    per_rank[timed.rank] += std::max(0.0, timed.end_ms - begin);
    computed += std::max(0.0, timed.end_ms - begin);
    covered = std::max(covered, timed.end_ms);
  }
  std::string text;
  for (const auto& [rank, ms] : per_rank) text += fmt::format("{}rank {} {}", text.empty() ? "" : ", ", rank, format_number(ms, 5));
  return fmt::format("critical path: {} actions, {} ms of computation ({}), {} ms of transfers and reductions\n", result.critical_path.size(),
                     format_number(computed, 6), text, format_number(std::max(0.0, result.makespan_ms - computed), 5));
}

std::string schedule_to_json(const Schedule& schedule, const SimulationResult& result) {
  Json json{{"schema", "pipedream.schedule/1"}, {"name", schedule.name}, {"policy", schedule.policy}, {"chunk_ranks", schedule.chunk_ranks}};
  json["micro_batches"] = schedule.micro_batches;
  json["step_micro_batches"] = schedule.step_micro_batches;
  json["slices"] = schedule.slices;
  const Json figures = Json::parse(simulation_to_json(result));
  for (const auto& [key, value] : figures.items())
    if (key != "schema") json[key] = value;
  const auto texts = [](const std::vector<Action>& part) {
    Json list = Json::array();
    for (const Action& action : part) list.push_back(to_string(action));
    return list;
  };
  json["repeats"] = schedule.repeats;
  json["programs"] = Json::array();
  for (const RankProgram& program : schedule.ranks)
    json["programs"].push_back({{"prologue", texts(program.prologue)}, {"body", texts(program.body)}, {"epilogue", texts(program.epilogue)}});
  return json.dump(2) + "\n";
}

}  // namespace pipedream
