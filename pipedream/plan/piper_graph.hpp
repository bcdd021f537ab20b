#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pipedream/graph/profile.hpp"

namespace pipedream {

/// One way to run a layer on `degree` devices that split its tensors.
struct PiperVariant {
  std::string name;           ///< "vanilla", "activation recomp", ...
  double time = 0;            ///< forward and backward of one sample, in the file's unit
  double memory_a_bytes = 0;  ///< of a device, for every sample in flight
  double memory_b_bytes = 0;  ///< of a device, besides
};

/// A layer on one tensor degree. What its variants have in common is kept once.
struct PiperDegree {
  double parameter_bytes = 0;          ///< of a device; reduced over the replicas
  std::vector<double> sync_in_bytes;   ///< per incoming edge, beside the tensor itself
  std::vector<double> sync_out_bytes;  ///< per outgoing edge
  std::vector<PiperVariant> variants;  ///< at least one
};

struct PiperNode {
  std::int64_t id = 0;
  std::string name;  ///< unique
  std::vector<int> in_edges, out_edges;
  std::map<int, PiperDegree> degrees;  ///< by tensor degree; a degree that is absent cannot be used for a stage with this layer
};

struct PiperEdge {
  int source = 0, target = 0;  ///< indices of nodes
  double bytes = 0;            ///< of the tensor, for one sample
};

/// A workload of the project Piper (msr-fiddle/piper, NeurIPS 2021). Format: docs/file_formats.md.
struct PiperGraph {
  std::string file;  ///< leads errors
  std::vector<PiperNode> nodes;
  std::vector<PiperEdge> edges;
  int devices = 1;
  double memory_bytes = 0;  ///< of a device
  double bandwidth = 0;     ///< bytes per unit of time
  int micro_batches = 1;    ///< of a mini-batch
};

/// The text is JSON with the keys of that project.
[[nodiscard]] bool looks_like_piper(const std::string& text);

/// @throws InputError with file and JSON pointer
[[nodiscard]] PiperGraph read_piper(const std::string& text, const std::string& file);

/// Its layers on one device each, nothing recomputed, as a profile. What recomputation would add is the forward, the rest of the time the backward;
/// where the file knows no recomputation all of the time is in the forward.
/// @param ms_per_unit of the file's times: 1000 if they are seconds
/// @throws InputError if a layer has no variant for one device
[[nodiscard]] Profile profile_of_piper(const PiperGraph& graph, double ms_per_unit);

/// The graph with `times` copies of a layer between it and `next`, as that project makes its larger BERT models: a copy costs what the layer costs,
/// has the edge from the one before it, with what the edge from `previous` costs, and the edge to the one behind it, and no other.
[[nodiscard]] PiperGraph repeat_layer(const PiperGraph& graph, int previous, int node, int next, int times);

}  // namespace pipedream
