// The work that the fake devices are given and do, reported to a test while it happens.
#pragma once

#include <functional>
#include <string>

namespace gantry::testing {

struct DeviceEvent {
  enum class Kind {
    kGiven,   // put on a stream, on the thread that gives it
    kBegins,  // of a library's operation: on its stream's thread, which waits for the listener
    kDone,
  };
  Kind kind;
  int device;
  int stream;        // its number
  std::string what;  // "aten::mm", "ncclAllReduce"
};

// Called for each event from now on, on any thread; null: none. Change it only while no device has work.
void set_device_listener(std::function<void(const DeviceEvent&)> listener);

void tell(const DeviceEvent& event);

}  // namespace gantry::testing
