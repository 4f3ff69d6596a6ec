#include "gantry/core/output.h"

#include <cerrno>
#include <cstring>
#include <string_view>
#include <unistd.h>

#include "gantry/core/error.h"

namespace gantry {

void print_output(const std::string& text) {
  // Past stdio, whose errors would show only when the program ends.
  for (std::string_view left = text; !left.empty();) {
    const ssize_t written = ::write(STDOUT_FILENO, left.data(), left.size());
    if (written >= 0) {
      left.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      return;  // seen only by those who ignore SIGPIPE; the others are ended by it
    } else if (errno != EINTR) {
      throw ResourceError({"stdout", std::string("can't be written: ").append(std::strerror(errno)), "",
                           "free space there, or write elsewhere"});
    }
  }
}

}  // namespace gantry
