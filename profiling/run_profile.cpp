#include "gantry/profiling/run_profile.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/base/warning.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/core/io/paths.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using nlohmann::json;
using schedule::Action;
using schedule::ActionKind;

constexpr double kOtherClock = 0.5;          // maximum difference in seconds between the ends of a barrier on one host
constexpr double kMoment = 0.001;            // microseconds before an action's end that still belong to it
constexpr int kActions = 0, kOperators = 1;  // threads in a rank's process
constexpr int kTableRows = 10, kReportRows = 20;

json named(const char* what, const std::string& name, int rank, int thread) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

bool sends(const Action& action) {
  return action.kind == ActionKind::kSendForward || action.kind == ActionKind::kSendBackward;
}

// The stage that sends the message of an action.
int sending_stage(const Action& action) {
  if (action.kind == ActionKind::kRecvForward) return action.stage - 1;
  return action.kind == ActionKind::kRecvBackward ? action.stage + 1 : action.stage;
}

// The same number for both ends of a message, and different from all other messages (FNV-1a; 53 bits, which JSON
// readers keep).
std::uint64_t message_number(const std::string& key) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash >> 11;
}

// One more than the last profile-C.trace.json in the folder; 0 if there is none.
int next_cycle(const std::string& folder) {
  int next = 0;
  for (const auto& entry : entries_of(folder)) {
    int cycle = 0, length = 0;
    const std::string name = entry.filename();
    if (std::sscanf(name.c_str(), "profile-%9d.trace.json%n", &cycle, &length) == 1 &&
        length == static_cast<int>(name.size()))
      next = std::max(next, cycle + 1);
  }
  return next;
}

}  // namespace

RunProfile::RunProfile(const Config& config, ProcessGroupMesh& mesh, std::function<void()> before_print)
    : config_(config), mesh_(mesh), before_print_(std::move(before_print)) {
  const auto& [wait, warmup, active, repeat] = config.profile;
  if (active > 0)
    profiler_ = std::make_unique<Profiler>(
        ProfileSchedule{wait, warmup, active, repeat}, [this](const Profile& profile) { write(profile); },
        [this] { mesh_.world_group().barrier().wait(); });
}

void RunProfile::follow_earlier() {
  if (!profiler_ || config_.output.empty()) return;
  if (mesh_.rank() == 0) first_cycle_ = next_cycle(config_.output);
  first_cycle_ = static_cast<int>(all_reduce_number(mesh_.world_group(), first_cycle_));
}

void RunProfile::finish() {
  if (!profiler_) return;
  profiler_->finish();
  if (cycles_ > 0 || mesh_.rank() != 0) return;
  const auto& [wait, warmup, active, repeat] = config_.profile;
  before_print_();
  print_warning(
      fmt::format("profile: the run ended before its first active step: wait {} + warmup {} + 1 = {} steps, but it "
                  "had {}; increase train.steps, or reduce the others",
                  wait, warmup, wait + warmup + 1, step_));
}

void RunProfile::saw(const Action& action, double start, double end) {
  if (profiler_) actions_.push_back({action, step_, start, end});
}

void RunProfile::step() {
  if (!profiler_) return;
  ++step_;
  // Only actions of active steps are kept.
  const auto& [wait, warmup, active, repeat] = config_.profile;
  const int length = wait + warmup + active;
  if ((step_ - 1) % length < wait + warmup || (repeat > 0 && step_ > repeat * length)) actions_.clear();
  profiler_->step();
}

// Time 0 on this rank's clock: the first action or operator of any rank. Clocks of other hosts have other origins. They
// are aligned with rank 0's by the time at which the ranks leave a barrier.
double RunProfile::origin(const Profile& profile) const {
  ProcessGroup& world = mesh_.world_group();
  world.barrier().wait();
  const double mine = steady_seconds();
  torch::Tensor first = torch::tensor({mine}, torch::kFloat64);
  world.broadcast(first, 0).wait();
  const double ahead = mine - first.item<double>();
  const double shift = std::abs(ahead) > kOtherClock ? ahead : 0;
  double start = actions_.empty() ? mine : actions_.front().start;
  if (!profile.operators.empty()) start = std::min(start, profile.operators.front().start);
  return all_reduce_number(world, start - shift, ReduceOp::kMin) + shift;
}

std::string RunProfile::flow_event(const SeenAction& seen, double origin) const {
  const Action& action = seen.action;
  const bool forward = action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvForward;
  const std::string key = fmt::format("{} {} {} {} {} {}", forward, sending_stage(action), action.microbatch, seen.step,
                                      mesh_.batch_group().rank(), mesh_.coordinate(axis::kTensor));
  json event = {{"name", "message"},         {"cat", "message"},    {"ph", sends(action) ? "s" : "f"},
                {"id", message_number(key)}, {"pid", mesh_.rank()}, {"tid", kActions}};
  const double start = (seen.start - origin) * kMicroseconds, end = (seen.end - origin) * kMicroseconds;
  event["ts"] = sends(action) ? start : std::max(start, end - kMoment);
  if (!sends(action)) event["bp"] = "e";
  return event.dump();
}

std::string RunProfile::action_events(double origin) const {
  std::string events;
  for (const auto& seen : actions_) {
    const Action& action = seen.action;
    const json event = {
        {"name", to_string(action)},
        {"cat", action.is_message() ? "message" : "action"},
        {"ph", "X"},
        {"pid", mesh_.rank()},
        {"tid", kActions},
        {"ts", (seen.start - origin) * kMicroseconds},
        {"dur", (seen.end - seen.start) * kMicroseconds},
        {"args", {{"stage", action.stage}, {"microbatch", action.microbatch}, {"step", seen.step + 1}}}};
    events += ",\n" + event.dump();
    if (action.is_message()) events += ",\n" + flow_event(seen, origin);
  }
  return events;
}

void RunProfile::write(const Profile& profile) {
  const int rank = mesh_.rank(), cycle = first_cycle_ + profile.cycle;
  ++cycles_;
  const double start = origin(profile);
  std::string events = named("process_name", mesh_.mesh().describe_rank(rank), rank, kActions).dump() + ",\n" +
                       named("thread_name", "schedule", rank, kActions).dump() + ",\n" +
                       named("thread_name", "operators", rank, kOperators).dump() + action_events(start);
  if (const std::string operators = chrome_events(profile, rank, kOperators, start); !operators.empty())
    events += ",\n" + operators;
  actions_.clear();
  if (!config_.output.empty()) {
    const std::string folder = fmt::format("{}/tensorboard/rank_{}", config_.output, rank);
    make_folders(folder);
    write_text_durably(fmt::format("{}/cycle_{}.pt.trace.json", folder, cycle), chrome_trace({events}));
    const auto all = gather_texts(mesh_.world_group(), events);
    const std::string merged = fmt::format("{}/profile-{}.trace.json", config_.output, cycle);
    if (rank == 0) {
      write_text_durably(merged, chrome_trace(all));
      before_print_();
      fmt::print("profile: {}{}\n", merged,
                 profile.steps == config_.profile.active
                     ? ""
                     : fmt::format(" ({} of {} active steps: the run is over)", profile.steps, config_.profile.active));
    }
  } else if (rank == 0 && cycles_ == 1) {
    before_print_();
    fmt::print("profile: no trace is written; set output to get one\n");
  }
  if (rank != 0) return;
  operators_ = costliest_operators(profile, kReportRows);
  before_print_();
  fmt::print("{}", operator_table(profile, kTableRows));
  std::fflush(stdout);
}

}  // namespace gantry
