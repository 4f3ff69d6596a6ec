#include "device_memory.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <execinfo.h>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

namespace gantry::testing {
namespace {

constexpr std::size_t kOwnSpan = kPretendDevices * kDeviceBytes, kSpan = kOwnSpan + kPeerMemories * kDeviceBytes;
constexpr int kExitCode = 86;

char* base = nullptr;
thread_local const char* last_operator = "none";

std::mutex shared_mutex;  // guards the next two
std::array<int, kPretendDevices> files{};
std::array<bool, kPeerMemories> mapped{};

char* peer_memory(std::size_t place) { return device_memory(0) + kOwnSpan + place * kDeviceBytes; }

// Maps the file at the kernels' addresses of `memory`.
void map_file(char* memory, int file) {
  if (::mmap(kernel_view(memory), kDeviceBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
             0) == MAP_FAILED) {
    std::perror("error: memory of a pretended device can't be mapped");
    std::abort();
  }
}

// Calls only functions that are safe in a signal handler, except snprintf: the process is about to end.
void on_fault(int number, siginfo_t* info, void*) {
  if (!is_device_memory(info->si_addr)) {
    ::signal(number, SIG_DFL);  // the fault repeats
    return;
  }
  std::array<char, 256> line{};
  const int length = std::snprintf(line.data(), line.size(),
                                   "error: the host touched memory of pretended device %d at %p; the last operator "
                                   "that this thread gave to a device: %s\n",
                                   device_of(info->si_addr), info->si_addr, last_operator);
  if (::write(STDERR_FILENO, line.data(), static_cast<std::size_t>(length)) < 0) ::_exit(kExitCode);
  std::array<void*, 64> frames{};
  ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), frames.size()), STDERR_FILENO);
  ::_exit(kExitCode);
}

// Runs once, before main, when the devices are registered.
char* reserve() {
  void* all = ::mmap(nullptr, 2 * kSpan, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  char* memory = static_cast<char*>(all);
  if (all == MAP_FAILED || ::mprotect(memory + kSpan, kSpan, PROT_READ | PROT_WRITE) != 0) {
    std::perror("error: no addresses for pretended devices");
    std::abort();
  }
  ::madvise(all, 2 * kSpan, MADV_DONTDUMP);
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);  // the first call loads a library, which is not safe in a signal handler
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
  base = memory;
  return memory;
}

}  // namespace

char* device_memory(int device) {
  static char* const memory = reserve();
  return memory + static_cast<std::size_t>(device) * kDeviceBytes;
}

bool is_device_memory(const void* pointer) {
  const char* at = static_cast<const char*>(pointer);
  return base && at >= base && at < base + kSpan;
}

int device_of(const void* device_pointer) {
  return static_cast<int>(static_cast<std::size_t>(static_cast<const char*>(device_pointer) - base) / kDeviceBytes);
}

void* kernel_view(const void* pointer) {
  char* at = static_cast<char*>(const_cast<void*>(pointer));
  return is_device_memory(at) ? at + kSpan : at;
}

int share_device_memory(int device) {
  const std::lock_guard lock(shared_mutex);
  int& file = files.at(static_cast<std::size_t>(device));
  if (file > 0) return file;
  file = ::memfd_create("pretend_device", MFD_CLOEXEC);
  if (file <= 0 || ::ftruncate(file, static_cast<off_t>(kDeviceBytes)) != 0) {
    std::perror("error: no file for a pretended device's memory");
    std::abort();
  }
  map_file(device_memory(device), file);
  return file;
}

char* map_peer_memory(int file) {
  const std::lock_guard lock(shared_mutex);
  for (std::size_t place = 0; place < mapped.size(); ++place) {
    if (mapped[place]) continue;
    mapped[place] = true;
    map_file(peer_memory(place), file);
    return peer_memory(place);
  }
  std::fprintf(stderr, "error: memory of more than %d processes is mapped\n", kPeerMemories);
  std::abort();
}

void unmap_peer_memory(char* memory) {
  const std::lock_guard lock(shared_mutex);
  ::mmap(kernel_view(memory), kDeviceBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  mapped.at(static_cast<std::size_t>(memory - peer_memory(0)) / kDeviceBytes) = false;
}

bool is_peer_memory(const void* pointer) {
  return is_device_memory(pointer) && static_cast<const char*>(pointer) >= base + kOwnSpan;
}

void note_operator(const char* name) { last_operator = name; }

}  // namespace gantry::testing
