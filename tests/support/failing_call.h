// Lets a system call fail in the kernel (seccomp), for this process and all processes that it starts later.
#pragma once

#include <cstddef>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

namespace gantry::testing {

// `number`: such as SYS_fsync. `error`: the errno. Returns false if this kernel has no seccomp.
inline bool let_call_fail(int number, int error) {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(code), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Runs a shell command line in whose processes the call fails. The exit code is 125 if this kernel has no
// seccomp.
inline Outcome run_with_failing_call(int number, int error, const std::string& command, int seconds = 120) {
  const ScratchFolder scratch;
  const std::string line = fmt::format("exec timeout -k 5 {} sh {} >{} 2>{} </dev/null", seconds,
                                       scratch.write("command", command + "\n"), scratch / "out", scratch / "err");
  const pid_t child = ::fork();
  if (child == 0) {
    if (!let_call_fail(number, error)) ::_exit(125);
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(scratch / "out"), read_file(scratch / "err")};
}

}  // namespace gantry::testing
