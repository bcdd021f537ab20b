#pragma once

#include <string>
#include <vector>

#include "pipedream/cluster/cluster.hpp"
#include "pipedream/plan/cost_model.hpp"

namespace pipedream {

/// One way to give devices to the next stage (searches go from the last stage to the first).
struct Take {
  int next = 0;     ///< label after it
  int setting = 0;  ///< index in DeviceLayout::settings
};

/// The ways in which devices may be given to stages. A label says which devices the later stages have already.
///
/// - Uniform: devices and network are all equal; the label is the number of devices in use.
/// - Consecutive: stages take runs of consecutive devices, in order; the label is the length of the run that is in use at the end.
/// - Strided: the same inside each group of a level, and every stage has replicas in all groups alike.
/// - Counted: the network is uniform, the devices are of a few kinds; the label counts the devices in use of each kind.
class DeviceLayout {
 public:
  enum class Form { Uniform, Consecutive, Strided, Counted };

  std::string name;
  Form form = Form::Uniform;
  std::vector<StageSetting> settings;
  int labels = 0;                ///< labels are 0 .. labels - 1; nothing is in use at label 0
  std::vector<int> used;         ///< per label the number of devices in use
  std::vector<double> capacity;  ///< per label the summed rate of the devices not in use

  /// The takes of a label, replicas ascending.
  [[nodiscard]] const std::vector<Take>& takes(int label) const { return takes_[static_cast<std::size_t>(label)]; }
  /// Labels that a whole plan may end with: all devices, or the first few if some may stay idle.
  [[nodiscard]] bool is_final(int label, bool fewer_devices) const {
    if (!fewer_devices || form == Form::Consecutive || form == Form::Strided) return label == labels - 1;
    return label > 0 && (prefix.empty() || prefix[static_cast<std::size_t>(label)]);
  }
  /// The devices of each stage, first stage first. `path` holds the takes from the last stage to the first with the labels they start from.
  [[nodiscard]] std::vector<std::vector<int>> devices(const std::vector<std::pair<int, Take>>& path) const;

  std::vector<std::vector<Take>> takes_;
  std::vector<std::vector<int>> devices_of_kind;  ///< Counted
  int group = 0, groups = 1;                      ///< Strided: devices per group and number of groups
  std::vector<int> strides;                       ///< Counted: of the label's mixed radix
  std::vector<int> order;                         ///< Consecutive: device at each place; empty: as in the file
  bool is_sample = false;                         ///< of several kinds of devices on a hierarchy there are more orders than are looked at
  std::vector<bool> prefix;                       ///< Counted: the label's counts are those of the first devices of the cluster
};

/// Kinds of the devices of a cluster, and per device its kind. @param times per device which measurement it uses
struct DeviceKinds {
  std::vector<DeviceKind> kinds;
  std::vector<int> of_device;
};
[[nodiscard]] DeviceKinds device_kinds(const Cluster& cluster, const std::vector<int>& times);

/// All layouts that suit the cluster; the search tries each and takes the best plan. @param straight no replication
/// @param fewer devices may stay idle: where position matters there is a layout for every number of devices in use (above 32 for whole groups only)
/// @param stages the most there can be: without replication and with idle devices no more devices than that are of use
[[nodiscard]] std::vector<DeviceLayout> device_layouts(const Cluster& cluster, const DeviceKinds& kinds, bool straight, bool fewer, int stages);

/// Setting of a stage on any devices between two others (empty: none), worked out the slow way.
[[nodiscard]] StageSetting setting_of(const Cluster& cluster, const DeviceKinds& kinds, std::vector<int> devices, std::vector<int> before,
                                      std::vector<int> after);

}  // namespace pipedream
