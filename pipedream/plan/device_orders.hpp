#pragma once

#include <vector>

#include "pipedream/cluster/cluster.hpp"

namespace pipedream {

/// Orders of the devices of a hierarchy that differ in the kinds of devices at their places: groups of a level may change places, and so may the
/// devices of a lowest group, because the network looks the same from everywhere. A stage takes consecutive places of an order.
struct DeviceOrders {
  std::vector<std::vector<int>> orders;  ///< place to device; the first is that of the file
  bool all = true;                       ///< false: there are more
};
/// @param kinds  of each device @param most  orders to give at most
[[nodiscard]] DeviceOrders device_orders(const Cluster& cluster, const std::vector<int>& kinds, int most);

}  // namespace pipedream
