#include "device_work.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include <c10/core/DeviceGuard.h>

#include "device_allocator.h"
#include "device_events.h"
#include "device_graphs.h"

namespace gantry::testing {
namespace {

std::mutex counts_mutex;  // guards the next
std::array<DeviceCounts, kPretendDevices> counts;

}  // namespace

void count(int device, const std::function<void(DeviceCounts&)>& change) {
  const std::lock_guard lock(counts_mutex);
  change(counts.at(static_cast<std::size_t>(device)));
}

DeviceCounts device_counts(int device) {
  const std::lock_guard lock(counts_mutex);
  return counts.at(static_cast<std::size_t>(device));
}

void reset_device_counts() {
  const std::lock_guard lock(counts_mutex);
  counts = {};
}

void launch_kernel(int device, const std::string& what, const std::vector<Access>& accesses,
                   std::function<void()> kernel) {
  PretendStream& stream = current_stream(device);
  if (GraphRecording* recording = stream.recording())
    return recording->kernels.push_back({what, accesses, std::move(kernel)});
  race_checker(device).launch(stream.number(), accesses, what);
  count(device, [](DeviceCounts& all) { ++all.kernels; });
  const DeviceEvent event{DeviceEvent::Kind::kGiven, device, stream.number(), what};
  tell(event);
  auto run = [kernel = std::move(kernel), done = event]() mutable {
    kernel();
    done.kind = DeviceEvent::Kind::kDone;
    tell(done);
  };
  if (kernels_are_late()) return stream.submit(std::move(run));
  if (!stream.idle()) stream.wait();
  run();
}

void run_and_wait(int device, const std::string& what, const std::vector<Access>& accesses,
                  const std::function<void()>& kernel) {
  PretendStream& stream = current_stream(device);
  refuse_while_recording(stream, what);
  race_checker(device).launch(stream.number(), accesses, what);
  count(device, [](DeviceCounts& all) { ++all.kernels; });
  host_waits_for(stream);
  kernel();
}

void resize_storage(c10::StorageImpl& storage, std::size_t bytes) {
  const c10::DeviceGuard guard(storage.device());
  c10::DataPtr memory = device_allocator().allocate(bytes);
  const std::size_t kept = std::min(bytes, storage.nbytes());
  if (kept > 0) {
    const void* from = storage.data();
    void* to = memory.get();
    launch_kernel(storage.device().index(), "resize", {{from, kept, false}, {to, kept, true}},
                  [to, from, kept] { std::memcpy(kernel_view(to), kernel_view(from), kept); });
  }
  storage.set_data_ptr_noswap(std::move(memory));
  storage.set_nbytes(bytes);
}

}  // namespace gantry::testing
