#include "gantry/comm/control/job_token.h"

#include <cerrno>
#include <cstring>
#include <sys/random.h>

#include "gantry/core/error.h"

namespace gantry {

JobToken random_job_token() {
  JobToken token{};
  std::size_t filled = 0;
  while (filled < token.size()) {
    const ssize_t got = ::getrandom(token.data() + filled, token.size() - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw ResourceError({"control plane", std::string("no random bits: ") + std::strerror(errno), "", ""});
    filled += static_cast<std::size_t>(got);
  }
  return token;
}

bool same_job_token(const JobToken& a, const JobToken& b) {
  volatile std::uint8_t difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference = static_cast<std::uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace gantry
