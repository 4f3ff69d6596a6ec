#include "shared_room.h"

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <linux/futex.h>
#include <map>
#include <new>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gantry::testing {
namespace {

constexpr std::size_t kStateBytes = std::size_t{1} << 16;
static_assert(sizeof(RoomState) <= kStateBytes);
constexpr std::size_t kRoomBytes = kStateBytes + kMostMembers * kSlotBytes;
constexpr long kLookNanoseconds = 20'000'000;

std::mutex rooms_mutex;  // guards the following
std::map<std::string, std::weak_ptr<SharedRoom>> rooms;
std::map<std::string, std::shared_ptr<SharedRoom>> unentered;  // by ids of this process

[[noreturn]] void give_up(const char* call) {
  std::perror(call);
  std::abort();
}

// An ended process that its parent has not waited for is a zombie.
bool has_ended(pid_t process) {
  if (::kill(process, 0) != 0 && errno == ESRCH) return true;
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(") ");
  return name_end == std::string::npos || text[name_end + 2] == 'Z' || text[name_end + 2] == 'X';
}

long futex(std::atomic<std::uint32_t>& word, int call, std::uint32_t value, const timespec* limit) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), call, value, limit, nullptr, 0);
}

}  // namespace

std::string SharedRoom::new_id() {
  static std::atomic<int> next{0};
  const int file = ::memfd_create("fake nccl", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(kRoomBytes)) != 0) give_up("memfd_create");
  const std::string id =
      std::to_string(::getpid()) + " " + std::to_string(file) + " " + std::to_string(next.fetch_add(1));
  auto room = std::make_shared<SharedRoom>(file);
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  new (room->state_) RoomState;
  ::pthread_mutex_init(&room->state_->mutex, &attributes);
  const std::lock_guard lock(rooms_mutex);
  unentered[id] = std::move(room);
  return id;
}

std::shared_ptr<SharedRoom> SharedRoom::enter(const std::string& id) {
  const std::lock_guard lock(rooms_mutex);
  if (auto room = rooms[id].lock()) return room;
  std::shared_ptr<SharedRoom> room;
  if (const auto own = unentered.find(id); own != unentered.end()) {
    room = own->second;
    unentered.erase(own);
  } else {
    int process = 0, file = 0;
    if (std::sscanf(id.c_str(), "%d %d", &process, &file) != 2 || process == ::getpid()) return nullptr;
    const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
    const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (opened < 0) return nullptr;
    room = std::make_shared<SharedRoom>(opened);
  }
  rooms[id] = room;
  return room;
}

SharedRoom::SharedRoom(int file) : file_(file) {
  void* const begin =
      ::mmap(nullptr, kRoomBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, /*offset=*/0);
  if (begin == MAP_FAILED) give_up("mmap");
  state_ = static_cast<RoomState*>(begin);
  memory_ = static_cast<char*>(begin) + kStateBytes;
}

SharedRoom::~SharedRoom() {
  ::munmap(state_, kRoomBytes);
  ::close(file_);
}

void SharedRoom::Lock::acquire() {
  if (::pthread_mutex_lock(&room_.state_->mutex) == EOWNERDEAD) ::pthread_mutex_consistent(&room_.state_->mutex);
}

void SharedRoom::Lock::release() { ::pthread_mutex_unlock(&room_.state_->mutex); }

void SharedRoom::Lock::wait() {
  const std::uint32_t seen = room_.state_->changes;
  release();
  const timespec limit{0, kLookNanoseconds};
  futex(room_.state_->changes, FUTEX_WAIT, seen, &limit);
  acquire();
}

char* SharedRoom::slot(int member) { return memory_ + static_cast<std::size_t>(member) * kSlotBytes; }

void SharedRoom::tell_change() {
  ++state_->changes;
  futex(state_->changes, FUTEX_WAKE, INT_MAX, nullptr);
}

void SharedRoom::join(int member, int size) {
  const Lock lock(*this);
  state_->size = size;
  ++state_->joined;
  state_->processes[member] = ::getpid();
  tell_change();
}

bool SharedRoom::waits_for_others(int member) {
  for (int other = 0; other < state_->size; ++other) {
    const pid_t process = state_->processes[other];
    if (other == member || process == 0 || process == ::getpid() || state_->left[other]) continue;
    if (!has_ended(process)) return true;
  }
  return false;
}

void SharedRoom::leave(int member) {
  Lock lock(*this);
  state_->left[member] = true;
  tell_change();
  while (waits_for_others(member)) lock.wait();
}

}  // namespace gantry::testing
