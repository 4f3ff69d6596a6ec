// Linked into a test program, this puts the ranks of all its tests on pretended devices.
#include "device_ranks.h"

namespace gantry::testing {
namespace {

const bool set = [] {
  start_ranks() = [](const Config& config, const std::function<void(World&)>& body) {
    return launch_on_devices(config, body);
  };
  return true;
}();

}  // namespace
}  // namespace gantry::testing
