#include "gantry/trainer/status/status_access.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <fmt/format.h>

#include "gantry/comm/control/rendezvous.h"
#include "gantry/core/base/base64.h"
#include "gantry/core/error.h"
#include "gantry/core/host/addresses.h"
#include "gantry/core/host/this_host.h"

namespace gantry {
namespace {

constexpr std::size_t kLeastToken = 16;  // characters
constexpr const char* kUser = "gantry";

bool is_address(const std::string& text) {
  in6_addr bytes{};
  return ::inet_pton(AF_INET, text.c_str(), &bytes) == 1 || ::inet_pton(AF_INET6, text.c_str(), &bytes) == 1;
}

// "localhost:8080" and "[::1]:8080" without the port and brackets, in lower case.
std::string name_in(const std::string& host) {
  std::string name = host.starts_with('[') ? host.substr(1, host.find(']') - 1) : host.substr(0, host.find(':'));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.ends_with('.') ? name.substr(0, name.size() - 1) : name;
}

bool same_text(const std::string& a, const std::string& b) {
  volatile unsigned difference = a.size() != b.size();
  for (std::size_t i = 0; i < b.size(); ++i)
    difference = difference | static_cast<unsigned>((i < a.size() ? a[i] : 0) ^ b[i]);
  return difference == 0;
}

}  // namespace

std::optional<StatusPlace> parse_status_place(const std::string& text) {
  const auto colon = text.rfind(':');
  StatusPlace place{.host = colon == std::string::npos ? "" : text.substr(0, colon)};
  if (colon == 0) return std::nullopt;
  if (place.host.starts_with('[') && place.host.ends_with(']'))
    place.host = place.host.substr(1, place.host.size() - 2);
  const char* begin = text.data() + (colon == std::string::npos ? 0 : colon + 1);
  const char* end = text.data() + text.size();
  const auto [next, fault] = std::from_chars(begin, end, place.port);
  if (fault != std::errc() || next != end || place.port < 0 || place.port > 65535) return std::nullopt;
  return place;
}

bool is_own_host(const std::string& host) {
  const std::string name = name_in(host);
  return is_address(name) || name == "localhost" || (!name.empty() && name == name_in(host_name()));
}

bool carries_token(const std::string& authorization, const std::string& token) {
  const auto space = authorization.find(' ');
  if (space == std::string::npos) return false;
  std::string scheme = authorization.substr(0, space);
  std::ranges::transform(scheme, scheme.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string value = authorization.substr(space + 1);
  if (scheme == "bearer") return same_text(value, token);
  return scheme == "basic" && same_text(value, encode_base64(fmt::format("{}:{}", kUser, token)));
}

bool is_loopback(const std::string& address) { return address == "::1" || address.starts_with("127."); }

std::string status_address(const std::string& host) {
  if (host.empty() || host == "localhost") return loopback_address();
  if (host == "0.0.0.0" || host == "::") return host;
  const auto all = network_interfaces();
  for (const NetworkInterface& one : all)
    if (one.name == host || one.address == host) return one.address;
  if (is_address(host) && is_loopback(host)) return host;
  throw UsageError({"--status", "'" + host + "' is not an active interface or address of this host",
                    "one of " + list_interfaces(all), "pass only a port to listen on loopback"});
}

StatusToken status_token(const std::string& address) {
  if (const char* given = std::getenv("GANTRY_STATUS_TOKEN"); given && *given) {
    const std::string token = given;
    if (token.size() < kLeastToken)
      throw UsageError({"GANTRY_STATUS_TOKEN", fmt::format("the token has {} characters", token.size()),
                        fmt::format("at least {} random characters", kLeastToken),
                        "create one with openssl rand -hex 16"});
    return {token};
  }
  if (is_loopback(address)) return {};
  std::string token;
  for (const auto byte : random_job_token()) token += fmt::format("{:02x}", byte);
  return {token, /*is_random=*/true};
}

}  // namespace gantry
