#include "gantry/core/io/file_lock.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/file.h>

#include "gantry/core/base/warning.h"

namespace gantry {

bool try_lock(int file, const std::string& path) {
  static std::atomic<bool> has_warned{false};
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return true;
  const int error = errno;
  if (error == EWOULDBLOCK) return false;
  if (!has_warned.exchange(true))
    print_warning(
        fmt::format("{}: the path cannot be locked ({}), so a second job that writes here is not detected; make "
                    "sure that only one does",
                    path, std::strerror(error)));
  return true;
}

}  // namespace gantry
