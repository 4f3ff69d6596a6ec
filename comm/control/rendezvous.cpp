#include "gantry/comm/control/rendezvous.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <sstream>
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
      throw ResourceError({"control plane", std::string("reading random bits failed: ") + std::strerror(errno),
                           "a system call getrandom that works", ""});
    filled += static_cast<std::size_t>(got);
  }
  return token;
}

bool same_job_token(const JobToken& a, const JobToken& b) {
  volatile std::uint8_t difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference = static_cast<std::uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

std::string encode_meeting(const Rendezvous& meeting) {
  std::string text;
  for (const std::uint8_t byte : meeting.token) text += fmt::format("{:02x}", byte);
  return fmt::format("{} {} {}", text, meeting.port, meeting.address);
}

std::optional<Rendezvous> decode_meeting(const std::string& text) {
  std::istringstream words(text);
  std::string digits;
  Rendezvous meeting;
  if (!(words >> digits >> meeting.port >> meeting.address) || digits.size() != 2 * meeting.token.size())
    return std::nullopt;
  for (std::size_t i = 0; i < meeting.token.size(); ++i) {
    const char* const begin = digits.data() + 2 * i;
    if (std::from_chars(begin, begin + 2, meeting.token[i], 16).ptr != begin + 2) return std::nullopt;
  }
  return meeting;
}

}  // namespace gantry
