#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <vector>

#include "pipedream/schedule/generate.hpp"

namespace pipedream {

/// A request that suits the schedule: ranks 1 to 16 in all, micro-batches 1 to 64 a step, chunks, replicas, slices, several steps with a rest.
inline ScheduleRequest any_request(const std::string& name) {
  const ScheduleInfo info = find_schedule(name);
  const bool mirror = info.placement == Placement::Mirror;
  ScheduleRequest request;
  request.name = name;
  const int positions = mirror ? 2 * *rc::gen::inRange(1, 5) : *rc::gen::inRange(1, 9);
  const bool unequal = name == "1f1b" || name == "1f1b-async" || name == "gpipe" || name == "model-parallel";
  std::vector<int> replicas(static_cast<std::size_t>(positions), *rc::gen::inRange(1, 3));
  if (unequal)
    for (int& count : replicas) count = *rc::gen::inRange(1, 4);
  if (name == "wpipe") std::fill(replicas.begin(), replicas.end(), 1);
  const int chunks = info.placement == Placement::Loop && name != "wpipe" ? *rc::gen::inRange(1, 5) : info.chunks_per_rank;
  request.chunk_ranks = place_chunks(info.placement, chunks, replicas);
  if (name == "interleaved" && chunks > 1)
    request.chunk_ranks.resize(request.chunk_ranks.size() - static_cast<std::size_t>(*rc::gen::inRange(0, positions)));
  request.step_micro_batches = *rc::gen::inRange(1, 65);
  request.micro_batches = request.step_micro_batches * *rc::gen::inRange(1, 5) + *rc::gen::inRange(0, request.step_micro_batches);
  const int width = replicas.front();
  if (name == "dualpipe") {  // even numbers of at least 2 p per pipe
    request.step_micro_batches = 2 * width * (positions + *rc::gen::inRange(0, 4));
    request.micro_batches = request.step_micro_batches * *rc::gen::inRange(1, 4);
  }
  if (name == "dualpipe-v") {
    request.step_micro_batches = width * (2 * positions + *rc::gen::inRange(0, 9));
    request.micro_batches = request.step_micro_batches * *rc::gen::inRange(1, 4);
  }
  if (name == "wpipe") request.step_micro_batches = std::max(request.step_micro_batches, positions);
  if (name == "asp") request.micro_batches = *rc::gen::inRange(1, 40), request.step_micro_batches = 1;
  if (name == "1f1b-async" || name == "asp") request.extra_in_flight = *rc::gen::inRange(0, 4);
  if (name == "gpipe" || name == "seq1f1b") request.slices = *rc::gen::inRange(1, 5);
  if (name == "zb-auto" || name == "zb-v" || name == "v-half" || name == "v-min") {  // searched for: keep the search short
    request.search_effort = 2e4;
    request.costs = {*rc::gen::inRange(1, 20) * 1.0, *rc::gen::inRange(1, 20) * 1.0, *rc::gen::inRange(1, 20) * 1.0, *rc::gen::inRange(0, 5) * 1.0};
    request.step_micro_batches = std::min(request.step_micro_batches, 24);
    request.micro_batches = std::min(request.micro_batches, 2 * request.step_micro_batches + 1);
  }
  return request;
}

inline std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleInfo& info : list_schedules()) names.push_back(info.name);
  return names;
}

}  // namespace pipedream
