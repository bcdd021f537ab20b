#include "pipedream/runtime/version_store.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

at::Tensor parameter_of(const Layer& layer, const std::string& name) {
  for (const auto& [found, tensor] : layer.parameters())
    if (found == name) return tensor;
  throw InternalError("a tie names the parameter '" + name + "', which its layer does not have");
}

/// Gives a tied parameter whose first place lies in another chunk the initial values of that place.
void take_values_from_other_chunks(const Model& model, const Layers& layers, std::uint64_t seed) {
  const c10::NoGradGuard no_grad;
  for (const WeightTie& tie : model.ties) {
    const auto& origin = tie.places[0];
    if (layers[static_cast<std::size_t>(origin.layer)]) continue;
    const LayerNode& node = model.nodes[static_cast<std::size_t>(origin.layer)];
    for (const auto& place : tie.places)
      if (const auto& layer = layers[static_cast<std::size_t>(place.layer)])
        parameter_of(*layer, place.parameter).copy_(parameter_of(*node.create({seed, node.name}), origin.parameter));
  }
}

}  // namespace

VersionStore::VersionStore(const Model& model, const std::vector<int>& nodes, std::uint64_t seed, int num_slots) {
  PD_CHECK(num_slots >= 1);
  slots_.resize(static_cast<std::size_t>(num_slots));
  for (auto& slot : slots_) slot.layers.resize(model.nodes.size());
  Layers& first = slots_[0].layers;
  for (const int node : nodes) {
    const LayerNode& layer = model.nodes[static_cast<std::size_t>(node)];
    first[static_cast<std::size_t>(node)] = layer.create({seed, layer.name});
  }
  take_values_from_other_chunks(model, first, seed);
  apply_ties(model, first);
  for (std::size_t slot = 1; slot < slots_.size(); ++slot) {
    for (const int node : nodes) slots_[slot].layers[static_cast<std::size_t>(node)] = first[static_cast<std::size_t>(node)]->another_version();
    apply_ties(model, slots_[slot].layers);
  }
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    std::vector<const void*> seen;
    for (const int node : nodes) {
      for (const auto& [name, tensor] : slots_[slot].layers[static_cast<std::size_t>(node)]->parameters()) {
        const void* identity = tensor.unsafeGetTensorImpl();
        if (std::find(seen.begin(), seen.end(), identity) != seen.end()) continue;
        seen.push_back(identity);
        slots_[slot].parameters.push_back(tensor);
        if (slot > 0) continue;
        names_.push_back(model.nodes[static_cast<std::size_t>(node)].name + "." + name);
        parameter_nodes_.push_back(node);
      }
    }
    PD_CHECK(slots_[slot].parameters.size() == names_.size(), "a version has {} parameters, the first one {}", slots_[slot].parameters.size(),
             names_.size());
  }
  slots_[0].version = 0;
  slots_[0].live = true;
}

VersionStore::Slot& VersionStore::at(std::int64_t version) {
  for (auto& slot : slots_)
    if (slot.version == version) return slot;
  throw InternalError(fmt::format("weight version {} is gone; the newest is {}", version, newest_));
}

VersionStore::Slot& VersionStore::acquire(std::int64_t version) {
  Slot& slot = at(version);
  PD_CHECK(slot.live, "weight version {} was dropped before a forward that reads it", version);
  ++slot.users;
  return slot;
}

void VersionStore::release(Slot& slot) {
  PD_CHECK(slot.users > 0);
  --slot.users;
}

VersionStore::Slot& VersionStore::begin_step(std::int64_t version, bool in_place) {
  PD_CHECK(version == newest_, "a step reads version {}, the newest is {}", version, newest_);
  Slot& source = at(version);
  if (in_place && source.users == 0) return source;
  for (auto& slot : slots_)
    if (!slot.live && slot.users == 0) return slot;
  throw InternalError(fmt::format("no slot is free for weight version {}: all {} are needed", version + 1, slots_.size()));
}

void VersionStore::end_step(std::int64_t version, Slot& target) {
  target.version = version + 1;
  target.live = true;
  newest_ = version + 1;
  const auto live = std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.live || slot.users > 0; });
  peak_ = std::max(peak_, static_cast<int>(live));
}

void VersionStore::drop(std::int64_t version) {
  for (auto& slot : slots_)
    if (slot.version == version) {
      PD_CHECK(version != newest_, "the newest weight version {} was dropped", version);
      slot.live = false;
    }
}

std::int64_t VersionStore::parameter_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& tensor : slots_[0].parameters) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace pipedream
