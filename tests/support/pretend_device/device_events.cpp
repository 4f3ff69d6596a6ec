#include "device_events.h"

#include <memory>
#include <mutex>

namespace gantry::testing {
namespace {

using Listener = std::function<void(const DeviceEvent&)>;

std::mutex listener_mutex;  // guards the next
std::shared_ptr<const Listener> listener;

}  // namespace

void set_device_listener(Listener wanted) {
  const std::lock_guard lock(listener_mutex);
  listener = wanted ? std::make_shared<const Listener>(std::move(wanted)) : nullptr;
}

void tell(const DeviceEvent& event) {
  std::shared_ptr<const Listener> to;
  {
    const std::lock_guard lock(listener_mutex);
    to = listener;
  }
  if (to) (*to)(event);
}

}  // namespace gantry::testing
