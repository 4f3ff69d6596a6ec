#include "device_memory.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gantry::testing {
namespace {

constexpr std::size_t kSpan = kPretendDevices * kDeviceBytes;
constexpr int kExitCode = 86;

char* base = nullptr;
thread_local const char* last_operator = "none";

// Only what is safe in a signal handler, but for the formatting of one line: the process is about to end.
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

// Reserved once, before main, since devices are registered then.
char* reserve() {
  void* all = ::mmap(nullptr, 2 * kSpan, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  char* memory = static_cast<char*>(all);
  if (all == MAP_FAILED || ::mprotect(memory + kSpan, kSpan, PROT_READ | PROT_WRITE) != 0) {
    std::perror("error: no addresses for pretended devices");
    std::abort();
  }
  ::madvise(all, 2 * kSpan, MADV_DONTDUMP);
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);  // its first call loads a library, which no handler should
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

void note_operator(const char* name) { last_operator = name; }

}  // namespace gantry::testing
