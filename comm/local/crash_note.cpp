#include "gantry/comm/local/crash_note.h"

#include <cstdio>
#include <cstring>
#include <unistd.h>

#include "gantry/comm/recorder/flight_recorder.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr std::size_t kStackBytes = 64 << 10;  // some kernels save kilobytes of registers there

thread_local std::array<char, 128> rank_name{};

void write_text(const char* text) { (void)!::write(STDERR_FILENO, text, std::strlen(text)); }

// Nothing here may allocate or lock.
void on_crash(int signal) {
  write_text("error: ");
  write_text(rank_name[0] != '\0' ? rank_name.data() : "a thread beside the ranks");
  write_text(": ended by SIG");
  const char* name = ::sigabbrev_np(signal);
  write_text(name ? name : "?");
  write_text("\n");
  ::raise(signal);  // which has its default again
}

// exit() first destroys what the calling thread has of its own, and then what is the process's: the other ranks still
// work with that, so this is the last moment to end in good order.
struct WithinWork {
  bool is_within = false;
  ~WithinWork() {
    if (is_within) leave();
  }
  [[noreturn]] static void leave();
};
thread_local WithinWork within_work;

void WithinWork::leave() {
  const std::string cause = format_error({rank_name.data(), "the program ended within its rank's work",
                                          "the body of launch to return", "return from it in place of calling exit"});
  recorder::record_failure(PeerError::kExitCode, cause);
  write_text(("error: " + cause + "\n").c_str());
  std::fflush(nullptr);
  ::_exit(PeerError::kExitCode);
}

}  // namespace

CrashNote::CrashNote() {
  struct sigaction note {};
  note.sa_handler = on_crash;
  note.sa_flags = SA_RESETHAND | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&note.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction former {};
    ::sigaction(kSignals[i], nullptr, &former);
    caught_[i] = (former.sa_flags & SA_SIGINFO) == 0 && former.sa_handler == SIG_DFL;
    if (caught_[i]) ::sigaction(kSignals[i], &note, nullptr);
  }
}

CrashNote::~CrashNote() {
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    if (caught_[i]) ::signal(kSignals[i], SIG_DFL);
}

CrashNote::RankThread::RankThread(const std::string& rank) {
  rank_name.fill('\0');
  std::strncpy(rank_name.data(), rank.c_str(), rank_name.size() - 1);
  within_work.is_within = true;
  stack_t former{};
  if (::sigaltstack(nullptr, &former) != 0 || (former.ss_flags & SS_DISABLE) == 0) return;
  stack_ = std::make_unique<char[]>(kStackBytes);
  stack_t own{};
  own.ss_sp = stack_.get();
  own.ss_size = kStackBytes;
  ::sigaltstack(&own, nullptr);
}

CrashNote::RankThread::~RankThread() {
  within_work.is_within = false;
  if (!stack_) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
}

}  // namespace gantry
