// Who may ask the status server, and where it listens.
#pragma once

#include <optional>
#include <string>

namespace gantry {

// Where live status is served.
struct StatusPlace {
  std::string host;  // empty: loopback
  int port = 0;      // 0: any free one
};
// "8080", "eth0:8080", "[::1]:8080". Nothing for what is neither.
std::optional<StatusPlace> parse_status_place(const std::string& text);

// Whether a request's Host names this server: an address, localhost, or this host's name, with a port or without.
bool is_own_host(const std::string& host);

// Whether an Authorization field carries the token, by the Bearer or the Basic scheme (user "gantry"). Takes the same
// time wherever it differs.
bool carries_token(const std::string& authorization, const std::string& token);

// Where `--status HOST:PORT` listens, by its host: an interface's name, one of this host's addresses, localhost, or
// 0.0.0.0 and :: for all of them; loopback for none. UsageError that lists what this host has.
std::string status_address(const std::string& host);

bool is_loopback(const std::string& address);

// The token that requests must carry: GANTRY_STATUS_TOKEN; without it a random one beyond loopback, and none there.
// UsageError for one of fewer than 16 characters.
struct StatusToken {
  std::string text;  // empty: none is needed
  bool is_random = false;
};
StatusToken status_token(const std::string& address);

}  // namespace gantry
