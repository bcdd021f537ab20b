#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pipedream/model/run.hpp"

namespace pipedream {

/// The weight versions of one chunk: a ring of slots, each a full set of layer instances. The graph of a forward owns its slot until its
/// backward is done; a step writes the next version into a slot nobody needs, so no version is overwritten while a micro-batch needs it.
/// Version v is the weights after v steps of this chunk.
class VersionStore {
 public:
  struct Slot {
    Layers layers;                       ///< by index in Model::nodes; null where a layer is in another chunk
    std::vector<at::Tensor> parameters;  ///< distinct ones, in the order of parameter_names()
    std::int64_t version = -1;
    int users = 0;      ///< micro-batches between their forward and their backward
    bool live = false;  ///< not dropped yet
  };

  /// Creates version 0 from (seed, layer names) and `num_slots` slots that share its buffers.
  VersionStore(const Model& model, const std::vector<int>& nodes, std::uint64_t seed, int num_slots);

  [[nodiscard]] int num_slots() const { return static_cast<int>(slots_.size()); }
  [[nodiscard]] const std::vector<std::string>& parameter_names() const { return names_; }    ///< "layer.weight"
  [[nodiscard]] const std::vector<int>& parameter_nodes() const { return parameter_nodes_; }  ///< index in Model::nodes of each
  [[nodiscard]] std::int64_t newest() const { return newest_; }

  /// The slot of a version for a forward; its users are counted up. @throws InternalError if the version is gone
  Slot& acquire(std::int64_t version);
  void release(Slot& slot);
  /// The slot of a version without using it.
  [[nodiscard]] Slot& at(std::int64_t version);

  /// The slot that the step from `version` writes: one that nobody needs, or, where `in_place`, that of `version` itself.
  /// @throws InternalError if there is none: the schedule holds more versions than it said
  Slot& begin_step(std::int64_t version, bool in_place);
  /// The step has been written: `target` holds version + 1.
  void end_step(std::int64_t version, Slot& target);
  void drop(std::int64_t version);

  [[nodiscard]] std::vector<Slot>& slots() { return slots_; }
  [[nodiscard]] int peak_versions() const { return peak_; }
  [[nodiscard]] std::int64_t parameter_bytes() const;  ///< of one version

 private:
  std::vector<Slot> slots_;
  std::vector<std::string> names_;
  std::vector<int> parameter_nodes_;
  std::int64_t newest_ = 0;
  int peak_ = 1;
};

}  // namespace pipedream
