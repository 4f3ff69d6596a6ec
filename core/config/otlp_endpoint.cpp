#include "gantry/core/config/otlp_endpoint.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace gantry {
namespace {

constexpr int kHttpPort = 80, kLastPort = 65535;
constexpr std::string_view kScheme = "http://";

// Nothing that would need an escape in a request.
bool is_plain_url(std::string_view text) {
  for (const char c : text)
    if (c <= ' ' || c > '~' || std::string_view("\"<>\\^`{|}@?#").find(c) != std::string_view::npos) return false;
  return true;
}

// Returns 0 for a text that is not a port.
int port_of(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && port > 0 && port <= kLastPort ? port : 0;
}

}  // namespace

std::optional<OtlpEndpoint> parse_otlp_endpoint(const std::string& url) {
  if (!url.starts_with(kScheme) || !is_plain_url(url)) return std::nullopt;
  const std::string_view rest = std::string_view(url).substr(kScheme.size());
  const std::string_view authority = rest.substr(0, rest.find('/'));
  std::string path(rest.substr(authority.size()));
  while (path.ends_with('/')) path.pop_back();
  const bool has_brackets = authority.starts_with('[');
  const std::size_t end = std::min(authority.find(has_brackets ? ']' : ':'), authority.size());
  if (has_brackets && end == authority.size()) return std::nullopt;
  const std::string_view host = has_brackets ? authority.substr(1, end - 1) : authority.substr(0, end);
  const std::string_view after = authority.substr(end + (has_brackets ? 1 : 0));
  const int port = after.empty() ? kHttpPort : after.front() == ':' ? port_of(after.substr(1)) : 0;
  if (host.empty() || port == 0) return std::nullopt;
  return OtlpEndpoint{.host = std::string(host), .port = port, .path = path + "/v1/traces"};
}

}  // namespace gantry
