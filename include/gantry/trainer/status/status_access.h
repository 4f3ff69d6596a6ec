// Access control and the listening address of the status server.
#pragma once

#include <optional>
#include <string>

namespace gantry {

// The address at which live status is served.
struct StatusPlace {
  std::string host;  // empty: loopback
  int port = 0;      // 0: any free port
};
// Parses "8080", "eth0:8080" or "[::1]:8080". Empty if the text has another form.
std::optional<StatusPlace> parse_status_place(const std::string& text);

// True if the Host header of a request names this server: an IP address, localhost or this host's name, with or without
// a port.
bool is_own_host(const std::string& host);

// True if an Authorization header contains the token, in the Bearer or Basic scheme (user "gantry"). Compares in
// constant time.
bool carries_token(const std::string& authorization, const std::string& token);

// Returns the address to listen on for `--status HOST:PORT`. `host` is the name of an interface, an address of this
// host, localhost, or 0.0.0.0 or :: for all addresses; empty: loopback. Throws UsageError that lists the interfaces of
// this host.
std::string status_address(const std::string& host);

bool is_loopback(const std::string& address);

// Returns the token that requests must contain: GANTRY_STATUS_TOKEN if it is set. Otherwise, a random token if the
// address is not loopback, and no token for loopback. Throws UsageError if it has fewer than 16 characters.
struct StatusToken {
  std::string text;  // empty: no token needed
  bool is_random = false;
};
StatusToken status_token(const std::string& address);

}  // namespace gantry
