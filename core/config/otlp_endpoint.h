// The address of train.otlp.
#pragma once

#include <optional>
#include <string>

namespace gantry {

struct OtlpEndpoint {
  std::string host;  // a name or an address, without brackets
  int port = 0;
  std::string path;  // path for traces: "/v1/traces" after the path of the address
};

// Reads http://HOST[:PORT][/PATH]; the default port is that of HTTP, 80. Nothing for any other text: there is no TLS,
// so https is another text too.
std::optional<OtlpEndpoint> parse_otlp_endpoint(const std::string& url);

}  // namespace gantry
