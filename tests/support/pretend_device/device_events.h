// Reports the work of the pretended devices to a test while it happens.
#pragma once

#include <functional>
#include <string>

namespace gantry::testing {

struct DeviceEvent {
  enum class Kind {
    kGiven,   // put on a stream; reported on the submitting thread
    kBegins,  // only library operations; reported on the stream's thread, which waits for the listener
    kDone,
  };
  Kind kind;
  int device;
  int stream;        // its number
  std::string what;  // "aten::mm", "ncclAllReduce"
};

// Sets the function that is called for each event, on any thread; null: none. Change it only while no device
// has work.
void set_device_listener(std::function<void(const DeviceEvent&)> listener);

void tell(const DeviceEvent& event);

}  // namespace gantry::testing
