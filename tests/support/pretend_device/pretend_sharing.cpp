#include "pretend_sharing.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "gantry/core/error.h"
#include "pretend_device.h"

namespace gantry::testing {
namespace {

std::atomic<int> drops_shared_wait{0}, shared_waits{0};
std::atomic<bool> refuses_memory{false};

// A file descriptor of a process, and an index in the file.
struct FilePlace {
  pid_t process;
  int file, number;
};

SharedHandle handle_of(const FilePlace& place) {
  SharedHandle handle{};
  std::memcpy(handle.data(), &place, sizeof(place));
  return handle;
}

FilePlace place_of(const SharedHandle& handle) {
  FilePlace place{};
  std::memcpy(&place, handle.data(), sizeof(place));
  return place;
}

int open_file(const FilePlace& place) {
  const int file = ::open(fmt::format("/proc/{}/fd/{}", place.process, place.file).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw ResourceError({"pretended device", std::strerror(errno), "", ""});
  return file;
}

// The number of times that an event was recorded, and the number of these points that its stream has passed.
struct EventWords {
  std::atomic<std::uint64_t> recorded, reached;
};
constexpr int kSharedEvents = 256;

EventWords* map_events(int file) {
  void* words = ::mmap(nullptr, kSharedEvents * sizeof(EventWords), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (words == MAP_FAILED) throw ResourceError({"pretended device", "no memory for events", "", ""});
  return static_cast<EventWords*>(words);
}

// The events of this process. They are never freed, because streams may still reach their points.
struct OwnEvents {
  int file = ::memfd_create("pretend_events", MFD_CLOEXEC);
  EventWords* words = nullptr;
  std::atomic<int> made{0};

  OwnEvents() {
    if (::ftruncate(file, kSharedEvents * sizeof(EventWords)) == 0) words = map_events(file);
  }
};

OwnEvents& own_events() {
  static auto* events = new OwnEvents;
  return *events;
}

PretendStream& pretended(const c10::Stream& stream) {
  return pretend_stream(stream.device_index(), static_cast<int>(stream.id()));
}

class PretendSharedEvent final : public SharedEvent {
 public:
  PretendSharedEvent(const FilePlace& place, EventWords* words) : place_(place), words_(words) {}

  SharedHandle handle() const override { return handle_of(place_); }
  void record(const c10::Stream& stream) override {
    const std::uint64_t number = words_->recorded.fetch_add(1) + 1;
    PretendStream& ours = pretended(stream);
    if (ours.idle())
      words_->reached = number;
    else
      ours.submit([words = words_, number] { words->reached = number; });
  }
  void block(const c10::Stream& stream) const override {
    if (const int every = drops_shared_wait; every > 0 && ++shared_waits % every == 0) return;
    const std::uint64_t number = words_->recorded;
    if (words_->reached >= number) return;
    pretended(stream).submit([words = words_, number] {
      while (words->reached < number) std::this_thread::sleep_for(std::chrono::microseconds(20));
    });
  }

 private:
  const FilePlace place_;
  EventWords* const words_;
};

class PretendSharing final : public DeviceSharing {
 public:
  PretendSharing(int device, std::string uuid)
      : device_(pretend_device(device)), uuid_(std::move(uuid)), file_(share_device_memory(device)) {}

  torch::Device device() const override { return device_; }
  std::string uuid() const override { return uuid_; }

  SharedPlace find_place(const void* memory) override {
    char* begin = device_memory(device_.index());
    return {handle_of({::getpid(), file_, 0}), reinterpret_cast<std::uint64_t>(begin),
            static_cast<const char*>(memory) - begin};
  }
  char* open_memory(const SharedHandle& allocation) override {
    if (refuses_memory) throw ResourceError({"pretended device", "invalid context", "", ""});
    const int file = open_file(place_of(allocation));
    char* memory = map_peer_memory(file);
    ::close(file);
    return memory;
  }
  void close_memory(char* opened) override { unmap_peer_memory(opened); }

  std::unique_ptr<SharedEvent> make_event() override {
    OwnEvents& events = own_events();
    const int number = events.made++;
    if (number >= kSharedEvents) throw ResourceError({"pretended device", "no more events", "", ""});
    return std::make_unique<PretendSharedEvent>(FilePlace{::getpid(), events.file, number}, events.words + number);
  }
  // Never unmapped, because streams may still wait for the event when the object is destroyed.
  std::unique_ptr<SharedEvent> open_event(const SharedHandle& event) override {
    const FilePlace place = place_of(event);
    const int file = open_file(place);
    EventWords* words = map_events(file);
    ::close(file);
    return std::make_unique<PretendSharedEvent>(place, words + place.number);
  }

 private:
  const torch::Device device_;
  const std::string uuid_;
  const int file_;
};

}  // namespace

void set_sharing_faults(const SharingFaults& faults) {
  drops_shared_wait = faults.drops_wait;
  refuses_memory = faults.refuses_memory;
}

std::unique_ptr<DeviceSharing> share_pretend_device(int device, const std::string& uuid) {
  return std::make_unique<PretendSharing>(device, uuid);
}

}  // namespace gantry::testing
