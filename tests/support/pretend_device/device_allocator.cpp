#include "device_allocator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <list>
#include <map>
#include <set>
#include <tuple>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device_graphs.h"
#include "device_memory.h"
#include "device_stream.h"
#include "pretend_device.h"

namespace gantry::testing {
namespace {

constexpr std::size_t kLeastBytes = 512;

struct Block {
  char* begin = nullptr;
  std::size_t capacity = 0, bytes = 0;
  int device = 0, stream = 0;
  int pool = 0;  // > 0: pool of graphs that keeps the block, since replays use it after its tensors
  std::set<int> recorded;
};

struct Waiting {
  Block* block;
  std::vector<StreamPoint> points;  // one per recorded stream: its end when the block was freed
};

// The memory of one device, guarded by its mutex. Blocks are never returned to the system.
struct Heap {
  std::mutex mutex;
  std::size_t used = 0;                                                   // bytes of the address range
  std::size_t held = 0;                                                   // bytes of live tensors
  std::map<std::tuple<int, int, std::size_t>, std::vector<Block*>> free;  // by pool, stream and capacity
  std::list<Waiting> waiting;
};

std::atomic<std::size_t> limit{kDeviceBytes};

Heap& heap_of(int device) {
  static auto* all = new std::array<Heap, kPretendDevices>;
  return all->at(static_cast<std::size_t>(device));
}

// Overwrites freed memory with 0xFF bytes: in each replay of `recording`, or on the stream if `recording` is
// null.
void spoil(PretendStream& stream, char* begin, std::size_t bytes, GraphRecording* recording) {
  const auto fill = [begin, bytes] { std::memset(kernel_view(begin), 0xFF, bytes); };
  if (recording)
    recording->kernels.push_back({"its end", {{begin, bytes, true}}, fill});
  else if (stream.idle())
    fill();
  else
    stream.submit(fill);
}

void put_back(Heap& heap, Block& block) {
  PretendStream& stream = pretend_stream(block.device, block.stream);
  GraphRecording* recording = stream.recording();
  spoil(stream, block.begin, block.bytes, recording && recording->pool == block.pool ? recording : nullptr);
  heap.free[{block.pool, block.stream, block.capacity}].push_back(&block);
}

void take_back_waiting(Heap& heap) {
  std::erase_if(heap.waiting, [&](Waiting& one) {
    if (!std::all_of(one.points.begin(), one.points.end(), [](StreamPoint& point) { return point.reached(); }))
      return false;
    put_back(heap, *one.block);
    return true;
  });
}

// Reports to LibTorch's memory profiler, like CUDA's allocator.
void report(const Block& block, std::int64_t bytes) {
  if (c10::memoryProfilingEnabled())
    c10::reportMemoryUsageToProfiler(block.begin, bytes, 0, 0, pretend_device(block.device));
}

void release(void* context) {
  auto* block = static_cast<Block*>(context);
  if (block->pool == 0) race_checker(block->device).freed(block->begin, block->recorded);
  report(*block, -static_cast<std::int64_t>(block->bytes));
  Heap& heap = heap_of(block->device);
  const std::lock_guard lock(heap.mutex);
  heap.held -= block->bytes;
  if (block->recorded.empty()) return put_back(heap, *block);
  Waiting waiting{block, {}};
  for (const int number : block->recorded) waiting.points.emplace_back(pretend_stream(block->device, number), Clock());
  block->recorded.clear();
  heap.waiting.push_back(std::move(waiting));
}

Block* take(Heap& heap, int device, int stream, int pool, std::size_t bytes) {
  const std::size_t capacity = std::bit_ceil(std::max(bytes, kLeastBytes));
  take_back_waiting(heap);
  TORCH_CHECK_WITH(OutOfMemoryError, heap.held + bytes <= limit, "pretend device ", device, " out of memory: ", bytes,
                   " more bytes beside ", heap.held, " of ", limit.load());
  auto& free = heap.free[{pool, stream, capacity}];
  Block* block = nullptr;
  if (!free.empty()) {
    block = free.back();
    free.pop_back();
  } else {
    TORCH_CHECK_WITH(OutOfMemoryError, heap.used + capacity <= kDeviceBytes, "pretend device ", device,
                     " out of memory: ", capacity, " more bytes beside ", heap.used, " of ", kDeviceBytes);
    block = new Block{device_memory(device) + heap.used, capacity, 0, device, stream, pool, {}};
    heap.used += capacity;
    if (pool > 0) race_checker(device).allocated(block->begin, capacity, stream);
    std::memset(kernel_view(block->begin), 0xFF, std::min(bytes, capacity));
  }
  block->bytes = bytes;
  heap.held += bytes;
  return block;
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device = c10::impl::getDeviceGuardImpl(kPretendType)->getDevice();
    if (bytes == 0) return {nullptr, nullptr, &release_nothing, device};
    PretendStream& now = current_stream(device.index());
    const int stream = now.number(), pool = now.recording() ? now.recording()->pool : 0;
    Heap& heap = heap_of(device.index());
    Block* block = nullptr;
    {
      const std::lock_guard lock(heap.mutex);
      block = take(heap, device.index(), stream, pool, bytes);
    }
    if (pool == 0) race_checker(device.index()).allocated(block->begin, bytes, stream);
    report(*block, static_cast<std::int64_t>(bytes));
    return {block->begin, block, &release, device};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(kernel_view(to), kernel_view(from), bytes);
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& memory, c10::Stream stream) override { record_use(memory, stream); }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[kAll].current = stats.reserved_bytes[kAll].current = held_by(device);
    return stats;
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return {limit - static_cast<std::size_t>(held_by(device)), limit};
  }

 private:
  static void release_nothing(void*) {}
  static std::int64_t held_by(int device) {
    Heap& heap = heap_of(device);
    const std::lock_guard lock(heap.mutex);
    return static_cast<std::int64_t>(heap.held);
  }
};

}  // namespace

void set_device_limit(std::size_t bytes) { limit = bytes; }

c10::Allocator& device_allocator() {
  static auto* allocator = new DeviceAllocator;
  return *allocator;
}

void record_use(const c10::DataPtr& memory, const c10::Stream& stream) {
  if (memory.get_deleter() != &release) return;
  auto* block = static_cast<Block*>(memory.get_context());
  Heap& heap = heap_of(block->device);
  const std::lock_guard lock(heap.mutex);
  if (stream.id() != block->stream) block->recorded.insert(static_cast<int>(stream.id()));
}

}  // namespace gantry::testing
