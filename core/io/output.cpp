#include "gantry/core/io/output.h"

#include <cerrno>
#include <cstring>
#include <string_view>
#include <unistd.h>

#include "gantry/core/error.h"

namespace gantry {

void print_output(const std::string& text) {
  // Bypasses stdio, which would report errors only when the program ends.
  for (std::string_view left = text; !left.empty();) {
    const ssize_t written = ::write(STDOUT_FILENO, left.data(), left.size());
    if (written >= 0) {
      left.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      return;  // only for callers that ignore SIGPIPE; the signal ends all others
    } else if (errno != EINTR) {
      throw ResourceError({"stdout", std::string("the output cannot be written: ").append(std::strerror(errno)), "",
                           "free some space there, or write to another place"});
    }
  }
}

}  // namespace gantry
