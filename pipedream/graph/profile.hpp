#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace pipedream {

/// What was measured of one layer, for one micro-batch on one device. Times in milliseconds, sizes in bytes.
struct LayerProfile {
  std::string name;         ///< unique in its profile; the module path of the model
  std::string description;  ///< free text, "Conv2d(3, 64, kernel_size=3)"
  double forward_ms = 0;
  double backward_ms = 0;                     ///< the whole backward: the part for inputs and the part for weights
  std::optional<double> backward_input_ms;    ///< the part for inputs alone, where it could be told apart
  std::optional<double> backward_weight_ms;   ///< the part for weights alone, where it could be told apart
  double update_ms = 0;                       ///< the optimizer's step on this layer's parameters
  std::vector<std::int64_t> output_bytes;     ///< one entry per output tensor
  std::optional<std::int64_t> stashed_bytes;  ///< kept from forward to backward (own outputs included); unknown in original profiles
  std::int64_t parameter_bytes = 0;
  std::optional<int> stage_id;  ///< only in files of the original that carry a plan

  /// Sum of output_bytes.
  [[nodiscard]] std::int64_t total_output_bytes() const;
  bool operator==(const LayerProfile&) const = default;
};

/// Data flow: output `output` of layer `source` is read by layer `target` (indices into Profile::layers).
struct ProfileEdge {
  static constexpr int kAllOutputs = -1;  ///< the original's files do not say which output an edge carries
  int source = 0;
  int target = 0;
  int output = 0;
  bool operator==(const ProfileEdge&) const = default;
};

/// Layers that hold the same parameter (tied weights). Their gradients are summed before a step.
struct ParameterTie {
  std::vector<int> layers;  ///< indices into Profile::layers, ascending
  std::int64_t bytes = 0;   ///< of the shared parameter; counted in parameter_bytes of each of the layers
  bool operator==(const ParameterTie&) const = default;
};

/// Measured DAG of layers of one model at one micro-batch size on one type of device. File form: JSON, schema "pipedream.profile/1".
struct Profile {
  std::string model;      ///< "vgg11"
  std::string device;     ///< type of device it was measured on
  std::string optimizer;  ///< the one update_ms belongs to; empty if not measured
  int micro_batch = 0;    ///< samples per micro-batch; 0 if unknown
  std::vector<LayerProfile> layers;
  std::vector<ProfileEdge> edges;  ///< in the order of the target's inputs
  std::vector<ParameterTie> ties;

  [[nodiscard]] int num_layers() const { return static_cast<int>(layers.size()); }
  bool operator==(const Profile&) const = default;
};

/// Checks names (present, unique), times and sizes (finite, not negative), edges (known ends, no duplicates, no cycle) and ties.
/// @param place what errors name as the file @throws InputError with place, layer and remedy
void validate(const Profile& profile, const std::string& place);

/// Layer indices so that every edge goes forward; among the ready layers the one that comes first in the file goes first.
/// @throws InputError naming the layers of one cycle
[[nodiscard]] std::vector<int> topological_order(const Profile& profile);

/// Position of the layer of that name, nothing if there is none.
[[nodiscard]] std::optional<int> find_layer(const Profile& profile, const std::string& name);

/// 64-bit hash of everything that matters to a plan, as 16 hexadecimal digits: plans name the profile they came from by it.
[[nodiscard]] std::string fingerprint(const Profile& profile);

std::ostream& operator<<(std::ostream& out, const Profile& profile);

/// JSON text of a profile and back: profile_from_json(profile_to_json(p)) == p.
[[nodiscard]] std::string profile_to_json(const Profile& profile);
[[nodiscard]] Profile profile_from_json(const std::string& text, const std::string& file);

/// Reads a profile in either form, told apart by content: our JSON or the original's graph.txt. Validates it. "-" is standard input.
[[nodiscard]] Profile load_profile(const std::string& file);
/// The same from a text. @param name what errors name as the file
[[nodiscard]] Profile profile_from_text(const std::string& text, const std::string& name);

}  // namespace pipedream
