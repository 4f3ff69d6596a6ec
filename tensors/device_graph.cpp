#include "gantry/tensors/device_graph.h"

#include <map>

#include "gantry/core/error.h"

namespace gantry {
namespace {

std::map<c10::DeviceType, MakeDeviceGraph>& makers() {
  static std::map<c10::DeviceType, MakeDeviceGraph> all;
  return all;
}

}  // namespace

bool register_device_graphs(c10::DeviceType type, MakeDeviceGraph make) { return makers().emplace(type, make).second; }

bool has_device_graphs(c10::DeviceType type) { return makers().contains(type); }

std::unique_ptr<DeviceGraph> make_device_graph(c10::DeviceType type) {
  const auto found = makers().find(type);
  if (found == makers().end())
    throw InternalError(
        {"device graphs", "this build has none for " + c10::DeviceTypeName(type, /*lower_case=*/true), "", ""});
  return found->second();
}

}  // namespace gantry
