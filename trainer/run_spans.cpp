#include "gantry/trainer/run_spans.h"

#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/base/warning.h"
#include "gantry/core/config/otlp_endpoint.h"
#include "gantry/core/host/this_host.h"
#include "gantry/core/version.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr double kNanosecondsPerSecond = 1e9;
constexpr double kFinishSeconds = 5;

std::int64_t wall_offset() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count() -
         std::llround(steady_seconds() * kNanosecondsPerSecond);
}

OtlpAttributes resource_of(const ProcessGroupMesh& mesh) {
  OtlpAttributes resource = {{"service.name", "gantry"},
                             {"service.version", GANTRY_VERSION},
                             {"service.instance.id", fmt::format("rank {}", mesh.rank())},
                             {"host.name", host_name()},
                             {"process.pid", std::int64_t{::getpid()}},
                             {"gantry.rank", std::int64_t{mesh.rank()}}};
  for (const auto& [axis, coordinate] : mesh.coordinates())
    resource.emplace_back("gantry.axis." + axis, std::int64_t{coordinate});
  return resource;
}

void add_tag(OtlpAttributes& attributes, const Tag& tag) {
  if (tag.kind != Tag::Kind::kForward && tag.kind != Tag::Kind::kBackward) return;
  attributes.emplace_back("gantry.direction", name_of(tag.kind));
  attributes.emplace_back("gantry.stage", std::int64_t{tag.stage});
  attributes.emplace_back("gantry.microbatch", std::int64_t{tag.microbatch});
}

}  // namespace

RunSpans::RunSpans(std::function<void()> before_print)
    : before_print_(std::move(before_print)), offset_(wall_offset()) {
  std::random_device source;
  std::seed_seq seed{source(), source(), source(), source()};
  random_.seed(seed);
}

RunSpans::~RunSpans() = default;

// An id of 0 is invalid in OpenTelemetry.
std::uint64_t RunSpans::new_id() { return random_() | 1; }

std::int64_t RunSpans::wall_time(double steady) const { return std::llround(steady * kNanosecondsPerSecond) + offset_; }

void RunSpans::open(const Config& config, ProcessGroupMesh& mesh, std::int64_t done, bool prints) {
  const auto number = [this] { return static_cast<std::int64_t>(new_id()); };
  torch::Tensor agreed = torch::tensor({number(), number(), number()}, torch::kInt64);
  mesh.world_group().broadcast(agreed, 0).wait();
  const auto* numbers = agreed.const_data_ptr<std::int64_t>();
  const auto root = static_cast<std::uint64_t>(numbers[2]);
  const bool is_root = mesh.rank() == 0;
  const std::lock_guard lock(mutex_);
  run_ = {.id = is_root ? root : new_id(),
          .parent = is_root ? 0 : root,
          .name = "run",
          .start = wall_time(steady_seconds()),
          .attributes = {{"gantry.first_step", done + 1}, {"gantry.steps", std::int64_t{config.train.steps}}}};
  endpoint_ = config.train.otlp;
  prints_ = prints;
  exporter_ = std::make_unique<OtlpExporter>(*parse_otlp_endpoint(endpoint_),
                                             OtlpSource{.trace_high = static_cast<std::uint64_t>(numbers[0]),
                                                        .trace_low = static_cast<std::uint64_t>(numbers[1]),
                                                        .resource = resource_of(mesh)});
}

// A step of more spans than the exporter keeps loses the rest of them.
bool RunSpans::is_full() {
  if (spans_.size() + open_.size() < OtlpExporter::kMostPending) return false;
  ++lost_;
  return true;
}

void RunSpans::begin_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = {.id = new_id(),
           .parent = run_.id,
           .name = "step",
           .start = wall_time(steady_seconds()),
           .attributes = {{"gantry.step", step}}};
}

void RunSpans::saw(const schedule::Action& action, double start, double end) {
  if (action.is_message()) return;
  const std::lock_guard lock(mutex_);
  if (step_.id == 0 || is_full()) return;
  OtlpSpan& span = spans_.emplace_back(
      OtlpSpan{.id = new_id(),
               .parent = step_.id,
               .name = "action",
               .start = wall_time(start),
               .end = wall_time(end),
               .attributes = {{"gantry.kind", to_string(action.kind)}, {"gantry.stage", std::int64_t{action.stage}}}});
  if (has_microbatch(action.kind)) span.attributes.emplace_back("gantry.microbatch", std::int64_t{action.microbatch});
}

void RunSpans::close_step(OtlpAttributes results, const std::string& error) {
  const std::lock_guard lock(mutex_);
  if (step_.id == 0) return;
  step_.end = wall_time(steady_seconds());
  step_.error = error;
  for (auto& result : results) step_.attributes.push_back(std::move(result));
  spans_.push_back(std::exchange(step_, {}));
}

void RunSpans::end_step(const std::optional<StepMetrics>& metrics) {
  if (metrics)
    close_step({{"gantry.loss", metrics->loss},
                {"gantry.grad_norm", metrics->grad_norm},
                {"gantry.lr", metrics->lr},
                {"gantry.tokens", metrics->tokens}},
               "");
  else
    close_step({}, "the step was aborted");
  hand_over();
  warn_once();
}

void RunSpans::saved(std::int64_t step, double start, double end) {
  const std::lock_guard lock(mutex_);
  spans_.push_back({.id = new_id(),
                    .parent = run_.id,
                    .name = "save",
                    .start = wall_time(start),
                    .end = wall_time(end),
                    .attributes = {{"gantry.step", step}}});
}

void RunSpans::hand_over() {
  if (!exporter_) return;
  std::vector<OtlpSpan> spans;
  {
    const std::lock_guard lock(mutex_);
    spans.swap(spans_);
  }
  exporter_->add(std::move(spans));
}

void RunSpans::warn_once() {
  if (!prints_ || has_warned_) return;
  const std::string failure = exporter_->failure();
  if (failure.empty()) return;
  has_warned_ = true;
  before_print_();
  print_warning(
      fmt::format("train.otlp: {}: {}; spans that the collector does not take are dropped", endpoint_, failure));
}

void RunSpans::end(const std::string& error) noexcept {
  if (!exporter_ || std::exchange(has_ended_, true)) return;
  try {
    close_step({}, error);
    {
      const std::lock_guard lock(mutex_);
      run_.end = wall_time(steady_seconds());
      run_.error = error;
      spans_.push_back(run_);
    }
    hand_over();
    exporter_->finish(kFinishSeconds);
    if (error.empty()) warn_once();  // nothing follows the line of an error
    const std::int64_t dropped = exporter_->dropped() + lost_;
    if (prints_ && dropped > 0)
      fmt::print("train.otlp: {} of {} spans of this rank were dropped\n", dropped, dropped + exporter_->sent());
  } catch (const std::exception&) {  // the run is not to fail by its spans
  }
}

int RunSpans::begin_group(const std::string& label, const std::vector<int>& ranks, std::uint64_t& operation) {
  if (ranks.size() == 1) return -1;
  operation = kUnobserved;
  const std::lock_guard lock(mutex_);
  groups_.push_back(label);
  return static_cast<int>(groups_.size()) - 1;
}

std::uint64_t RunSpans::post(const ObservedCall& call) {
  const double now = steady_seconds();
  const std::lock_guard lock(mutex_);
  if (step_.id == 0 || is_full()) return kUnobserved;
  Message message{.span = {.id = new_id(),
                           .parent = step_.id,
                           .name = "message",
                           .start = wall_time(now),
                           .attributes = {{"gantry.operation", name_of(call.kind)},
                                          {"gantry.group", groups_[call.group]},
                                          {"gantry.bytes", call.bytes}}},
                  .entered = now};
  if (call.peer >= 0) message.span.attributes.emplace_back("gantry.peer", std::int64_t{call.peer});
  add_tag(message.span.attributes, call.tag);
  open_.emplace(++last_message_, std::move(message));
  return last_message_;
}

void RunSpans::enter_wait(std::uint64_t operation) {
  const std::lock_guard lock(mutex_);
  if (const auto found = open_.find(operation); found != open_.end()) found->second.entered = steady_seconds();
}

void RunSpans::leave(std::uint64_t operation) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(operation);
  if (found == open_.end() || found->second.entered == 0) return;
  found->second.waited += steady_seconds() - std::exchange(found->second.entered, 0);
}

void RunSpans::finish(std::uint64_t operation, OperationState state) {
  const double now = steady_seconds();
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(operation);
  if (found == open_.end()) return;
  Message message = std::move(found->second);
  open_.erase(found);
  if (message.entered != 0) message.waited += now - message.entered;
  message.span.end = wall_time(now);
  message.span.attributes.emplace_back("gantry.busy_seconds", message.waited);
  if (state != OperationState::kDone) message.span.error = fmt::format("the operation is {}", name_of(state));
  spans_.push_back(std::move(message.span));
}

}  // namespace gantry
