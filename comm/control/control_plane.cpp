#include "gantry/comm/control/control_plane.h"

#include <fmt/format.h>
#include <optional>

#include "gantry/comm/control/event_thread.h"
#include "gantry/comm/control/hub.h"
#include "gantry/comm/control/member.h"
#include "gantry/comm/control/reception.h"
#include "gantry/comm/control/timers.h"
#include "gantry/core/base/warning.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr double kForever = 1e9;  // seconds
constexpr const char* kRegroupedText = "the ranks of the job have changed";

ControlOptions complete(ControlOptions options) {
  if (!options.warn) options.warn = print_warning;
  if (!options.wants_stop) options.wants_stop = [] { return false; };
  return options;
}

ControlEvents complete(ControlEvents events) {
  if (!events.on_left) events.on_left = [](const std::set<int>&) {};
  if (!events.on_stop) events.on_stop = [] {};
  if (!events.on_regroup) events.on_regroup = [](const JobMembers&) {};
  if (!events.on_waiting) events.on_waiting = [] {};
  if (!events.on_record) events.on_record = [] {};
  return events;
}

std::string names_of(const ControlOptions& options, const std::set<int>& ranks) {
  std::string names;
  for (const int rank : ranks) names += (names.empty() ? "" : ", ") + options.describe_rank(rank);
  return names;
}

}  // namespace

struct ControlPlane::Impl {
  Impl(ControlOptions asked, ControlEvents called)
      : options(complete(std::move(asked))),
        events(complete(std::move(called))),
        member(thread.context(), options, events, milestones) {
    milestones.update([&](auto& p) {
      for (int rank = 0; rank < options.ranks; ++rank) p.members.ranks.push_back(rank);
    });
  }

  Rendezvous open_hub(const std::string& address);
  template <class Reached>
  control::Progress wait(const Reached& reached);
  void post(void (control::Member::*call)()) {
    control::asio::post(thread.context(), [this, call] { (member.*call)(); });
  }
  double patience() const {
    const bool first = options.rank == 0 && options.hub == HubPlace::rank0;
    return options.timeout_seconds + (first ? 0 : control::kHubFirstSeconds);
  }

  const ControlOptions options;
  const ControlEvents events;
  control::Milestones milestones;
  control::EventThread thread;
  control::Member member;
  std::optional<control::Hub> hub;  // in rank 0 only, like `reception`
  std::optional<control::Reception> reception;
};

Rendezvous ControlPlane::Impl::open_hub(const std::string& address) {
  const bool beats = options.heartbeat_seconds > 0;
  hub.emplace(thread.context(),
              control::HubOptions{.ranks = options.ranks,
                                  .heartbeat_seconds = options.heartbeat_seconds,
                                  .lost_after_seconds = beats ? options.lost_after_seconds : 0,
                                  .describe_rank = options.describe_rank},
              // All ranks have connected, so no further connection is expected.
              control::HubEvents{.on_begun = [this] { reception->stop_listening(); },
                                 .on_lost =
                                     [this](const JobFailure& failure) {
                                       hub->fail(failure);
                                       member.lose(failure);
                                     }});
  reception.emplace(
      thread.context(),
      control::ReceptionRules{
          .prefix = "control plane: ",
          .ranks = options.ranks,
          .handshake_seconds = options.handshake_seconds,
          .refusal = [this](const Hello& hello) { return hub->refusal(hello); },
          .welcome = [this](const Hello& hello, const auto& connection) { hub->welcome(hello.rank, connection); },
          .warn = options.warn});
  try {
    const Rendezvous meeting = reception->open(address, 0);
    hub->start();
    return meeting;
  } catch (const boost::system::system_error& error) {
    throw ResourceError({"control plane", "listening on " + address + " failed: " + error.code().message(),
                         "an address of this host", "set comm.interface"});
  }
}

// After the deadline, asks the hub which ranks are late.
template <class Reached>
control::Progress ControlPlane::Impl::wait(const Reached& reached) {
  control::Progress progress = milestones.wait(patience(), reached);
  if (!progress.failure && !reached(progress)) {
    post(&control::Member::ask);
    progress = milestones.wait(control::kAnswerSeconds, [&](const auto& p) { return reached(p) || !p.late.empty(); });
  }
  if (progress.failure) throw PeerError(progress.failure->cause);
  return progress;
}

ControlPlane::ControlPlane(std::unique_ptr<Impl> impl, const Rendezvous& meeting)
    : meeting_(meeting), impl_(std::move(impl)) {
  impl_->member.join(meeting_);
  impl_->thread.start();
}

std::unique_ptr<ControlPlane> ControlPlane::host(const ControlOptions& options, ControlEvents events,
                                                 const std::string& address) {
  auto impl = std::make_unique<Impl>(options, std::move(events));
  const Rendezvous meeting = impl->open_hub(address);
  return std::unique_ptr<ControlPlane>(new ControlPlane(std::move(impl), meeting));
}

std::unique_ptr<ControlPlane> ControlPlane::join(const ControlOptions& options, ControlEvents events,
                                                 const Rendezvous& meeting) {
  return std::unique_ptr<ControlPlane>(new ControlPlane(std::make_unique<Impl>(options, std::move(events)), meeting));
}

ControlPlane::~ControlPlane() {
  control::asio::post(impl_->thread.context(), [impl = impl_.get()] {
    impl->member.close();
    if (impl->reception) impl->reception->close();
    if (impl->hub) impl->hub->close();
  });
  impl_->thread.stop();
}

void ControlPlane::rendezvous() {
  const ControlOptions& options = impl_->options;
  const auto begun = [](const auto& p) { return p.begun; };
  // No deadline: a training step may take any time, and the launch ends a rank whose job is over.
  const control::Progress progress =
      options.joins ? impl_->milestones.wait(kForever, [&](const auto& p) { return begun(p); }) : impl_->wait(begun);
  if (progress.failure) throw PeerError(progress.failure->cause);
  if (progress.begun) return;
  const std::string hub = options.hub == HubPlace::rank0 ? options.describe_rank(0) : "the launch";
  const std::string whom = !progress.late.empty()     ? names_of(options, progress.late)
                           : progress.trouble.empty() ? "all ranks"
                                                      : hub + " (" + progress.trouble + ")";
  throw PeerError({"control plane",
                   fmt::format("{} waited {:g} s for {} at {}", options.describe_rank(options.rank), impl_->patience(),
                               whom, control::endpoint_text(meeting_.address, meeting_.port)),
                   "all ranks to connect", "set comm.interface to the network that connects the hosts"});
}

std::vector<std::string> ControlPlane::gather(const std::string& mine, int generation) {
  const ControlOptions& options = impl_->options;
  control::asio::post(impl_->thread.context(),
                      [impl = impl_.get(), mine, generation] { impl->member.share(generation, mine); });
  const auto is_over = [&](const auto& p) { return p.members.generation != generation; };
  const auto complete = [&](const auto& p) { return !is_over(p) && p.shared.size() == p.members.ranks.size(); };
  const control::Progress progress = impl_->wait([&](const auto& p) { return is_over(p) || complete(p); });
  if (is_over(progress)) throw PeerError(kRegroupedText);
  if (!complete(progress))
    throw PeerError(
        {"control plane",
         fmt::format("{} waited {:g} s for {} to begin", options.describe_rank(options.rank), impl_->patience(),
                     progress.late.empty() ? "all ranks" : names_of(options, progress.late)),
         "all ranks to begin", "check what the missing ranks are doing"});
  impl_->milestones.update([&](auto& p) {
    if (!is_over(p)) p.shared.clear();
  });
  std::vector<std::string> all;
  for (const auto& [rank, bytes] : progress.shared) all.push_back(bytes);
  return all;
}

JobMembers ControlPlane::members() const {
  return impl_->milestones.wait(0, [](const auto&) { return true; }).members;
}

bool ControlPlane::wait_for_generation(int after, double seconds) {
  const auto begun = [&](const auto& p) { return p.members.generation > after; };
  const control::Progress progress = impl_->milestones.wait(seconds, begun);
  if (progress.failure) throw PeerError(progress.failure->cause);
  return begun(progress);
}

void ControlPlane::become_elastic(const ElasticPolicy& policy) {
  control::asio::post(impl_->thread.context(), [impl = impl_.get(), policy] { impl->member.become_elastic(policy); });
}

void ControlPlane::grow() { impl_->post(&control::Member::grow); }

void ControlPlane::request_records() { impl_->post(&control::Member::request_records); }

void ControlPlane::lose_unreachable(int generation, int rank) {
  control::asio::post(impl_->thread.context(),
                      [impl = impl_.get(), generation, rank] { impl->member.lose_unreachable(generation, rank); });
}

std::string ControlPlane::address() const {
  return impl_->milestones.wait(0, [](const auto&) { return true; }).address;
}

void ControlPlane::tell(int exit_code, const std::string& cause) {
  control::asio::post(impl_->thread.context(),
                      [impl = impl_.get(), failure = JobFailure{impl_->options.rank, exit_code, cause}] {
                        impl->member.tell(failure);
                      });
}

void ControlPlane::leave() {
  const int generation = members().generation;
  impl_->post(&control::Member::finish);
  const auto is_over = [&](const auto& p) { return p.members.generation != generation; };
  control::Progress progress = impl_->wait([&](const auto& p) { return p.ended || is_over(p); });
  // The hub may have received the last `done` after the new generation began.
  if (is_over(progress))
    progress = impl_->milestones.wait(control::kAnswerSeconds, [](const auto& p) { return p.ended; });
  if (progress.ended) return;
  if (is_over(progress)) throw PeerError(kRegroupedText);
  const ControlOptions& options = impl_->options;
  const std::string whom = progress.late.empty() ? "all ranks" : names_of(options, progress.late);
  throw PeerError(
      {"control plane",
       fmt::format("{} waited {:g} s for {} to end", options.describe_rank(options.rank), impl_->patience(), whom),
       "all ranks to end at about the same time", "check what the slowest rank is doing"});
}

}  // namespace gantry
