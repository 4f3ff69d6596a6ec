#include "gantry/comm/nccl/nccl_stream.h"

#include <algorithm>
#include <fmt/format.h>
#include <mutex>
#include <set>
#include <utility>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// More often than any pool has streams, whoever else takes some meanwhile.
constexpr int kAttempts = 1024;

using StreamKey = std::pair<c10::DeviceIndex, c10::StreamId>;

// Lent streams, of all ranks of this process; guarded by its mutex. Never destroyed: communicators may end after it
// would be.
struct Lent {
  std::mutex mutex;
  std::set<StreamKey> streams;
};

Lent& lent() {
  static auto* all = new Lent;
  return *all;
}

StreamKey key_of(const c10::Stream& stream) { return {stream.device_index(), stream.id()}; }

c10::Stream borrow(const NcclDevice& device) {
  Lent& all = lent();
  const std::lock_guard lock(all.mutex);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const c10::Stream stream = device.pooled_stream();
    if (all.streams.insert(key_of(stream)).second) return stream;
  }
  const auto of_device = std::count_if(all.streams.begin(), all.streams.end(),
                                       [&](const StreamKey& one) { return one.first == device.device().index(); });
  throw ResourceError(
      {"nccl",
       fmt::format("{} communicators of this process have all of {}'s streams", of_device, device.device().str()),
       "a stream of its own for each, so that none waits behind another",
       "drop groups and plugins that are no longer used before more are made"});
}

}  // namespace

NcclStream::NcclStream(const NcclDevice& device) : stream_(borrow(device)) {}

NcclStream::~NcclStream() {
  Lent& all = lent();
  const std::lock_guard lock(all.mutex);
  all.streams.erase(key_of(stream_));
}

}  // namespace gantry
