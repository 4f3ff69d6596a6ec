#include "gantry/core/host/last_act.h"

#include <chrono>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

namespace gantry {
namespace {

std::mutex mutex;  // guards the next two
std::function<void(const std::string&)> last_act;
std::shared_future<void> last_act_end;

}  // namespace

void set_last_act(std::function<void(const std::string& error)> act) {
  const std::lock_guard lock(mutex);
  last_act = std::move(act);
  last_act_end = {};
}

void run_last_act(const std::string& error) try {
  std::shared_future<void> end;
  {
    const std::lock_guard lock(mutex);
    if (const auto act = std::exchange(last_act, {})) {
      std::packaged_task<void()> task([act, error] { act(error); });
      last_act_end = task.get_future().share();
      std::thread(std::move(task)).detach();
    }
    end = last_act_end;
  }
  if (end.valid()) end.wait_for(std::chrono::duration<double>(kLastActSeconds));
} catch (const std::exception&) {  // no thread to be had
}

}  // namespace gantry
