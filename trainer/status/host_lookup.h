// The addresses of a host, without blocking the caller.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/control/asio.h"

namespace gantry {

// Looks the host up on a thread of its own, which may outlive this object: nothing can end a request to the resolver.
class HostLookup {
 public:
  HostLookup(const std::string& host, int port);

  bool is_done() const;
  // Call it once the lookup is done. Throws boost::system::system_error if the host is unknown.
  std::vector<control::tcp::endpoint> endpoints() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace gantry
