#include "fake_device.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/torch.h>

namespace gantry::testing {
namespace {

std::atomic<int> live_events{0};

// Streams live as long as the process, as LibTorch's own do, and their threads may outlive its main one: never
// destroyed. Number 0 is the calling thread.
std::mutex streams_mutex;
auto& streams = *new std::vector<std::unique_ptr<FakeStream>>;
std::size_t pool_begin = 0, pool_size = 0, pool_dealt = 0;  // guarded by the same mutex

FakeStream& stream_of(c10::StreamId id) {
  const std::lock_guard lock(streams_mutex);
  return *streams.at(static_cast<std::size_t>(id) - 1);
}

// What an event was last recorded as.
class Point {
 public:
  void reach() {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }
  bool reached() {
    const std::lock_guard lock(mutex_);
    return reached_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
};
using Event = std::shared_ptr<Point>;

class FakeGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  explicit FakeGuard(torch::DeviceType type) : type_(type) {}
  torch::DeviceType type() const override { return type_; }
  torch::Device exchangeDevice(torch::Device) const override { return device(); }
  torch::Device getDevice() const override { return device(); }
  void setDevice(torch::Device) const override {}
  void uncheckedSetDevice(torch::Device) const noexcept override {}
  torch::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(torch::Device) const override { return numbered(current_); }
  c10::Stream getDefaultStream(torch::Device) const override { return numbered(0); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return numbered(std::exchange(current_, stream.id()));
  }
  c10::Stream getStreamFromGlobalPool(torch::Device, bool) const override {
    const std::lock_guard lock(streams_mutex);
    if (pool_size > 0) return numbered(static_cast<c10::StreamId>(pool_begin + pool_dealt++ % pool_size + 1));
    streams.push_back(std::make_unique<FakeStream>());
    return numbered(static_cast<c10::StreamId>(streams.size()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return &stream_of(stream.id()); }

  void record(void** event, const c10::Stream& stream, const torch::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) {
      *event = new Event;
      ++live_events;
    }
    auto point = std::make_shared<Point>();
    *static_cast<Event*>(*event) = point;
    if (stream.id() == 0)
      point->reach();
    else
      stream_of(stream.id()).add([point] { point->reach(); });
  }
  void block(void* event, const c10::Stream& stream) const override {
    const Event point = *static_cast<Event*>(event);
    if (stream.id() == 0)
      point->wait();
    else
      stream_of(stream.id()).add([point] { point->wait(); });
  }
  bool queryEvent(void* event) const override { return (*static_cast<Event*>(event))->reached(); }
  void synchronizeEvent(void* event) const override { (*static_cast<Event*>(event))->wait(); }
  void destroyEvent(void* event, const torch::DeviceIndex) const noexcept override {
    if (!event) return;
    delete static_cast<Event*>(event);
    --live_events;
  }

 private:
  torch::Device device() const { return torch::Device(type_); }
  c10::Stream numbered(c10::StreamId id) const { return c10::Stream(c10::Stream::UNSAFE, device(), id); }
  const torch::DeviceType type_;
  static thread_local c10::StreamId current_;
};

thread_local c10::StreamId FakeGuard::current_ = 0;

}  // namespace

void FakeStream::add(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (std::exchange(working_, true)) return;
  std::thread([this] { work(); }).detach();
}

void FakeStream::work() {
  while (true) {
    std::function<void()> task;
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.empty()) {
        working_ = false;
        return;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void install_fake_device(torch::DeviceType type) { c10::impl::registerDeviceGuard(type, new FakeGuard(type)); }

int live_fake_events() { return live_events; }

void set_fake_pool(int size) {
  const std::lock_guard lock(streams_mutex);
  pool_begin = streams.size();
  pool_size = static_cast<std::size_t>(size);
  for (int i = 0; i < size; ++i) streams.push_back(std::make_unique<FakeStream>());
}

}  // namespace gantry::testing
