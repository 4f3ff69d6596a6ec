#include "gantry/pipeline/action_times.h"

#include <utility>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "gantry/core/base/steady_seconds.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::schedule {
namespace {

class HostTimes final : public ActionTimes {
 public:
  void begin() override { begun_ = steady_seconds(); }
  void end(const Action& action) override { done_.push_back({action, begun_, steady_seconds()}); }
  std::vector<TimedAction> take() override { return std::exchange(done_, {}); }

 private:
  double begun_ = 0;
  std::vector<TimedAction> done_;
};

// Events are reused from step to step. The first event of a step relates the device's clock to the host's. If
// the device is not idle at that time, all times are late by its remaining work.
class DeviceTimes final : public ActionTimes {
 public:
  explicit DeviceTimes(torch::Device device) : device_(device), guard_(device.type()) {}

  void begin() override {
    if (actions_.empty()) {
      anchor_seconds_ = steady_seconds();
      record(0);
    }
    record(1 + 2 * actions_.size());
  }
  void end(const Action& action) override {
    record(2 + 2 * actions_.size());
    actions_.push_back(action);
  }
  std::vector<TimedAction> take() override {
    std::vector<TimedAction> done;
    if (actions_.empty()) return done;
    if (const c10::Event& last = events_[2 * actions_.size()]; !last.query()) last.synchronize();
    for (std::size_t i = 0; i < actions_.size(); ++i)
      done.push_back({actions_[i], seconds_of(1 + 2 * i), seconds_of(2 + 2 * i)});
    actions_.clear();
    return done;
  }

 private:
  void record(std::size_t place) {
    if (events_.size() <= place) events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    events_[place].record(guard_.getStream(device_));
  }
  double seconds_of(std::size_t place) const {
    constexpr double kMillisecond = 1e-3;
    return anchor_seconds_ + events_[0].elapsedTime(events_[place]) * kMillisecond;
  }

  const torch::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  std::vector<c10::Event> events_;  // the anchor, then a begin and an end per action
  std::vector<Action> actions_;
  double anchor_seconds_ = 0;
};

}  // namespace

std::unique_ptr<ActionTimes> action_times(torch::Device device) {
  if (device.is_cpu()) return std::make_unique<HostTimes>();
  return std::make_unique<DeviceTimes>(device);
}

}  // namespace gantry::schedule
