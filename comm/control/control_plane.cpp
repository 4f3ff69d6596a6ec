#include "gantry/comm/control/control_plane.h"

#include <fmt/format.h>

#include "gantry/comm/control/event_thread.h"
#include "gantry/comm/control/heartbeats.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

// How much longer others wait than rank 0, who can name the missing ranks.
constexpr double kHubFirstSeconds = 3;
constexpr double kAnswerSeconds = 1;  // that rank 0 has to say who is late, its own work done or not

std::string describe_all(const ControlOptions& options, const std::set<int>& ranks) {
  std::string names;
  for (const int rank : ranks) names += (names.empty() ? "" : ", ") + options.describe_rank(rank);
  return names;
}

}  // namespace

struct ControlPlane::Impl {
  Impl(const ControlOptions& options, ControlEvents events)
      : options(options), heartbeats(events_thread.context(), options, std::move(events), milestones) {}

  double patience() const { return options.timeout_seconds + (options.rank == 0 ? 0 : kHubFirstSeconds); }

  const ControlOptions options;
  control::Milestones milestones;
  control::EventThread events_thread;
  control::Heartbeats heartbeats;
};

ControlPlane::ControlPlane(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<ControlPlane> ControlPlane::host(const ControlOptions& options, ControlEvents events,
                                                 const std::string& address) {
  auto impl = std::make_unique<Impl>(options, std::move(events));
  const Meeting meeting = impl->heartbeats.open(address);
  impl->events_thread.start();
  std::unique_ptr<ControlPlane> plane(new ControlPlane(std::move(impl)));
  plane->meeting_ = meeting;
  return plane;
}

std::unique_ptr<ControlPlane> ControlPlane::join(const ControlOptions& options, ControlEvents events,
                                                 const Meeting& meeting) {
  auto impl = std::make_unique<Impl>(options, std::move(events));
  impl->heartbeats.join(meeting);
  impl->events_thread.start();
  std::unique_ptr<ControlPlane> plane(new ControlPlane(std::move(impl)));
  plane->meeting_ = meeting;
  return plane;
}

ControlPlane::~ControlPlane() {
  control::asio::post(impl_->events_thread.context(), [impl = impl_.get()] { impl->heartbeats.close(); });
  impl_->events_thread.stop();
}

void ControlPlane::rendezvous() {
  const control::Progress progress = impl_->milestones.wait(impl_->patience(), [](const auto& p) { return p.begun; });
  if (progress.failure) throw PeerError(progress.failure->cause);
  if (progress.begun) return;
  const ControlOptions& options = impl_->options;
  const std::string whom = options.rank == 0 ? "for " + describe_all(options, progress.absent)
                           : progress.trouble.empty()
                               ? "for all ranks"
                               : "for " + options.describe_rank(0) + " (" + progress.trouble + ")";
  throw PeerError({"control plane",
                   fmt::format("{} waited {:g} s {} at {}", options.describe_rank(options.rank), impl_->patience(),
                               whom, control::endpoint_text(meeting_.address, meeting_.port)),
                   "all ranks to connect", "set comm.interface to the network that joins the hosts"});
}

void ControlPlane::tell(int exit_code, const std::string& cause) {
  control::asio::post(impl_->events_thread.context(),
                      [impl = impl_.get(), failure = JobFailure{impl_->options.rank, exit_code, cause}] {
                        impl->heartbeats.tell(failure);
                      });
}

void ControlPlane::leave() {
  control::asio::post(impl_->events_thread.context(), [impl = impl_.get()] { impl->heartbeats.finish(); });
  control::Progress progress = impl_->milestones.wait(impl_->patience(), [](const auto& p) { return p.ended; });
  if (!progress.failure && !progress.ended && impl_->options.rank != 0) {
    control::asio::post(impl_->events_thread.context(), [impl = impl_.get()] { impl->heartbeats.ask(); });
    progress = impl_->milestones.wait(kAnswerSeconds, [](const auto& p) { return p.ended || !p.working.empty(); });
  }
  if (progress.failure) throw PeerError(progress.failure->cause);
  if (progress.ended) return;
  const ControlOptions& options = impl_->options;
  const std::string whom = progress.working.empty() ? "all ranks" : describe_all(options, progress.working);
  throw PeerError(
      {"control plane",
       fmt::format("{} waited {:g} s for {} to end", options.describe_rank(options.rank), impl_->patience(), whom),
       "all ranks to end together", "see what the slowest one does"});
}

}  // namespace gantry
