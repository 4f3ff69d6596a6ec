#include "gantry/core/base/warning.h"

#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

namespace gantry {
namespace {

std::mutex listeners_mutex;  // guards the next one
std::vector<const std::function<void(const std::string&)>*> warning_listeners;

}  // namespace

void print_warning(const std::string& line) {
  std::fputs(("warning: " + line + "\n").c_str(), stderr);
  const std::lock_guard lock(listeners_mutex);
  for (const auto* listen : warning_listeners) (*listen)(line);
}

WarningListener::WarningListener(std::function<void(const std::string& line)> listen) : listen_(std::move(listen)) {
  const std::lock_guard lock(listeners_mutex);
  warning_listeners.push_back(&listen_);
}

WarningListener::~WarningListener() {
  const std::lock_guard lock(listeners_mutex);
  std::erase(warning_listeners, &listen_);
}

}  // namespace gantry
