#include "pipedream/core/json.hpp"
#include "pipedream/sim/simulate.hpp"

namespace pipedream {

std::string simulation_to_json(const SimulationResult& result) {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    const RankFigures& figures = result.ranks[rank];
    ranks.push_back({{"rank", rank},
                     {"busy_ms", figures.busy_ms},
                     {"makespan_idle_ms", figures.makespan_idle_ms},
                     {"span_idle_ms", figures.span_idle_ms},
                     {"peak_activations", figures.peak_activations},
                     {"peak_versions", figures.peak_versions},
                     {"peak_memory_bytes", figures.peak_memory_bytes},
                     {"wait_activation_ms", figures.wait_activation_ms},
                     {"wait_gradient_ms", figures.wait_gradient_ms},
                     {"wait_reduction_ms", figures.wait_reduction_ms}});
  }
  Json links = Json::array();
  for (const LinkFigures& link : result.links)
    links.push_back({{"from", link.from}, {"to", link.to}, {"messages", link.messages}, {"bytes", link.bytes}, {"busy_ms", link.busy_ms}});
  const Json json{{"schema", "pipedream.simulation/1"},
                  {"makespan_ms", result.makespan_ms},
                  {"period_ms", result.period_ms},
                  {"bubble", result.bubble},
                  {"ranks", ranks},
                  {"links", links},
                  {"actions", result.actions}};
  return json.dump(2) + "\n";
}

}  // namespace pipedream
