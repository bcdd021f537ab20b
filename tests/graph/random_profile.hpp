#pragma once

#include <rapidcheck.h>

#include <set>
#include <string>
#include <utility>

#include "pipedream/graph/profile.hpp"

namespace pipedream {

/// A valid profile of up to `most` layers: edges go from lower to higher index, so there is no cycle.
inline Profile random_profile(int most = 12) {
  using rc::gen::inRange;
  Profile profile;
  profile.model = *rc::gen::elementOf(std::vector<std::string>{"", "net", "a \"quoted\" name"});
  profile.optimizer = *rc::gen::elementOf(std::vector<std::string>{"", "sgd"});
  profile.micro_batch = *inRange(0, 64);
  const int n = *inRange(1, most + 1);
  for (int i = 0; i < n; ++i) {
    LayerProfile layer;
    layer.name = "layer" + std::to_string(i);
    layer.description = *rc::gen::elementOf(std::vector<std::string>{"", "Linear(in=3, out=4)", "x - y", "tab\there"});
    layer.forward_ms = *inRange(0, 100000) / 1000.0;
    layer.backward_ms = *inRange(0, 100000) / 7.0;
    if (*rc::gen::arbitrary<bool>()) layer.backward_input_ms = *inRange(0, 1000) / 3.0;
    if (*rc::gen::arbitrary<bool>()) layer.backward_weight_ms = *inRange(0, 1000) / 3.0;
    layer.update_ms = *inRange(0, 1000) / 9.0;
    const int outputs = *inRange(0, 3);
    for (int o = 0; o < outputs; ++o) layer.output_bytes.push_back(*inRange<std::int64_t>(0, 1LL << 40));
    if (*rc::gen::arbitrary<bool>()) layer.stashed_bytes = *inRange<std::int64_t>(0, 1LL << 40);
    layer.parameter_bytes = *inRange<std::int64_t>(0, 1LL << 40);
    profile.layers.push_back(layer);
  }
  std::set<std::pair<int, int>> seen;
  const int edges = *inRange(0, 2 * n);
  for (int i = 0; i < edges && n > 1; ++i) {
    const int source = *inRange(0, n - 1), target = *inRange(source + 1, n);
    if (!seen.emplace(source, target).second) continue;
    const int outputs = static_cast<int>(profile.layers[static_cast<std::size_t>(source)].output_bytes.size());
    profile.edges.push_back({source, target, *inRange(-1, outputs)});
  }
  if (n > 2 && *rc::gen::arbitrary<bool>()) profile.ties.push_back({{0, n - 1}, 0});
  return profile;
}

}  // namespace pipedream
