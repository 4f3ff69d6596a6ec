#include "gantry/trainer/status/host_lookup.h"

#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace gantry {

using control::tcp;

struct HostLookup::Shared {
  std::mutex mutex;  // guards the others
  bool is_done = false;
  control::error_code error;
  std::vector<tcp::endpoint> endpoints;
};

HostLookup::HostLookup(const std::string& host, int port) : shared_(std::make_shared<Shared>()) {
  std::thread([shared = shared_, host, port] {
    control::error_code error;
    std::vector<tcp::endpoint> endpoints;
    try {
      control::asio::io_context context;
      for (const auto& entry : tcp::resolver(context).resolve(host, std::to_string(port), error))
        endpoints.push_back(entry.endpoint());
    } catch (const std::exception&) {  // no memory or descriptors are left
      error = control::asio::error::no_memory;
    }
    const std::lock_guard lock(shared->mutex);
    shared->error = error;
    shared->endpoints = std::move(endpoints);
    shared->is_done = true;
  }).detach();
}

bool HostLookup::is_done() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->is_done;
}

std::vector<tcp::endpoint> HostLookup::endpoints() const {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->error) throw boost::system::system_error(shared_->error);
  return shared_->endpoints;
}

}  // namespace gantry
