// Registers the devices with LibTorch: current device and streams, events, generators and pinned memory.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <mutex>
#include <set>
#include <unordered_map>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device_allocator.h"
#include "device_generator.h"
#include "device_graphs.h"
#include "device_work.h"
#include "gantry/tensors/libtorch.h"
#include "pretend_device.h"

namespace gantry::testing {
namespace {

// As in CUDA: streams per pool, and one pool for each of the priorities 0 to -3.
constexpr int kPooledStreams = 32, kPools = 4;

std::atomic<int> pooled{kPooledStreams}, events{0};
thread_local c10::DeviceIndex device_now = 0;
thread_local std::array<int, kPretendDevices> stream_now{};

// Stream 0 is the default stream. The pools follow, priority 0 first. Higher numbers belong to no pool.
std::array<std::array<std::atomic<int>, kPretendDevices>, kPools> given_out{};
std::array<std::atomic<int>, kPretendDevices> made{};

std::atomic<int> drops_wait{0}, waits{0};
std::atomic<bool> drops_records{false};

using Event = std::shared_ptr<StreamPoint>;
StreamPoint& point_of(void* event) { return **static_cast<Event*>(event); }

class PretendGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kPretendType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return pretend_device(device_now); }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) device_now = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kPretendDevices; }

  c10::Stream getStream(c10::Device device) const override {
    const int index = device.has_index() ? device.index() : device_now;
    return stream(index, stream_now.at(static_cast<std::size_t>(index)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream(device.has_index() ? device.index() : device_now, 0);
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    int& now = stream_now.at(static_cast<std::size_t>(next.device_index()));
    return stream(next.device_index(), std::exchange(now, static_cast<int>(next.id())));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool is_high) const override {
    return next_of(device, is_high ? kPools - 1 : 0);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    if (priority < 0) return next_of(device, std::min(-priority, kPools - 1));
    const int index = device.has_index() ? device.index() : device_now;
    return stream(index, kPools * kPooledStreams + 1 + made[static_cast<std::size_t>(index)]++);
  }
  void* getStreamNativeHandle(const c10::Stream of) const override { return &ours(of); }

  void record(void** event, const c10::Stream& on, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) {
      *event = new Event;
      ++events;
    }
    *static_cast<Event*>(*event) =
        std::make_shared<StreamPoint>(ours(on), race_checker(on.device_index()).now(static_cast<int>(on.id())));
  }
  void block(void* event, const c10::Stream& on) const override {
    const Event point = *static_cast<Event*>(event);
    TORCH_CHECK(ours(on).recording() == point->recording(), "operation not permitted when stream is capturing: stream ",
                on.id(), " waits for an event of stream ", point->stream().number(),
                ", and one of them is not recorded");
    if (const int every = drops_wait; every > 0 && ++waits % every == 0) return;
    if (point->stream().device() == on.device_index())
      race_checker(on.device_index()).stream_waits(static_cast<int>(on.id()), point->clock());
    if (!point->reached()) ours(on).submit([point] { point->wait(); });
  }
  bool queryEvent(void* event) const override {
    if (!point_of(event).reached()) return false;
    seen(point_of(event));
    return true;
  }
  void synchronizeEvent(void* event) const override {
    refuse_while_recording(point_of(event).stream(), "the host waits for an event");
    count(point_of(event).stream().device(), [](DeviceCounts& all) { ++all.host_reads; });
    point_of(event).wait();
    seen(point_of(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (!event) return;
    delete static_cast<Event*>(event);
    --events;
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    return 1000 * (point_of(to).seconds() - point_of(from).seconds());
  }

  bool queryStream(const c10::Stream& on) const override { return ours(on).idle(); }
  void synchronizeStream(const c10::Stream& on) const override {
    refuse_while_recording(ours(on), "the host waits for the stream");
    count(on.device_index(), [](DeviceCounts& all) { ++all.host_reads; });
    host_waits_for(ours(on));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    count(device, [](DeviceCounts& all) { ++all.host_reads; });
    for (int number = 0; number <= kPools * kPooledStreams + made[static_cast<std::size_t>(device)]; ++number)
      host_waits_for(pretend_stream(device, number));
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& on) const override {
    if (!drops_records) record_use(memory, on);
  }

 private:
  static c10::Stream next_of(c10::Device device, int pool) {
    const int index = device.has_index() ? device.index() : device_now;
    auto& taken = given_out[static_cast<std::size_t>(pool)][static_cast<std::size_t>(index)];
    return stream(index, pool * kPooledStreams + taken++ % pooled + 1);
  }
  static c10::Stream stream(int device, int number) {
    return c10::Stream(c10::Stream::UNSAFE, pretend_device(device), number);
  }
  static PretendStream& ours(const c10::Stream& stream) {
    return pretend_stream(stream.device_index(), static_cast<int>(stream.id()));
  }
  static void seen(const StreamPoint& point) { race_checker(point.device()).host_waits(point.clock()); }
};

// Host memory that counts as pinned, so copies from and to it may be asynchronous.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    const std::lock_guard lock(mutex_);
    sizes_[memory] = bytes;
    return {memory, memory, &release, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool holds(const void* pointer) {
    const std::lock_guard lock(mutex_);
    for (const auto& [memory, bytes] : sizes_)
      if (pointer >= memory && pointer < static_cast<const char*>(memory) + std::max<std::size_t>(bytes, 1))
        return true;
    return false;
  }
  static PinnedAllocator& instance() {
    static auto* allocator = new PinnedAllocator;
    return *allocator;
  }

 private:
  // CUDA's pinned allocator reuses a block only after the copies that use it. Here a block can be freed at
  // once, because the task of a copy in flight holds its host tensor (native_operators.cpp).
  static void release(void* memory) {
    const std::lock_guard lock(instance().mutex_);
    instance().sizes_.erase(memory);
    std::free(memory);
  }
  std::mutex mutex_;
  std::unordered_map<const void*, std::size_t> sizes_;
};

class PretendHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kPretendDevices; }
  void setCurrentDevice(c10::DeviceIndex device) const override { device_now = device; }
  c10::DeviceIndex getCurrentDevice() const override { return device_now; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return std::exchange(device_now, device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::instance().holds(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &PinnedAllocator::instance(); }
  c10::Device getDeviceFromPtr(void* data) const override { return pretend_device(device_of(data)); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return device_generator(device < 0 ? device_now : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return new_device_generator(device < 0 ? device_now : device);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

// Fails each test whose kernels raced.
class RaceListener final : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    for (const std::string& race : take_races()) ADD_FAILURE() << race;
  }
};

const bool registered = [] {
  device_memory(0);
  c10::impl::device_guard_impl_registry[static_cast<std::size_t>(kPretendType)].store(new PretendGuard);
  c10::register_privateuse1_backend("pretend");
  c10::SetAllocator(kPretendType, &device_allocator());
  at::RegisterPrivateUse1HooksInterface(new PretendHooks);
  ::testing::UnitTest::GetInstance()->listeners().Append(new RaceListener);
  return true;
}();

}  // namespace

PretendStream& current_stream(int device) {
  return pretend_stream(device, stream_now.at(static_cast<std::size_t>(device)));
}

void host_waits_for(PretendStream& stream) {
  const Clock clock = race_checker(stream.device()).now(stream.number());
  stream.wait();
  race_checker(stream.device()).host_waits(clock);
}

void set_device_faults(const DeviceFaults& faults) {
  drops_wait = faults.drops_wait;
  drops_records = faults.drops_records;
}

void set_stream_pool(int streams) { pooled = streams; }
int live_events() { return events; }

}  // namespace gantry::testing
