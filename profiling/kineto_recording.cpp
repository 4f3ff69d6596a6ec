#include "gantry/profiling/kineto_recording.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <kineto/libkineto.h>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/memory_meter.h"
#include "gantry/tensors/torch_versions.h"

namespace gantry {
namespace {

namespace kineto = torch::profiler::impl;
using torch::autograd::profiler::KinetoEvent;
using torch::autograd::profiler::ProfilerResult;

constexpr double kNanosecond = 1e-9;

kineto::ProfilerConfig settings() {
  kineto::ExperimentalConfig more;
  more.profile_all_threads = true;
  return kineto::ProfilerConfig(kineto::ProfilerState::KINETO, /*report_input_shapes=*/true, /*profile_memory=*/true,
                                /*with_stack=*/false, /*with_flops=*/false, /*with_modules=*/false, more);
}

std::set<kineto::ActivityType> activities() {
  std::set<kineto::ActivityType> wanted{kineto::ActivityType::CPU};
  if (torch::cuda::is_available()) wanted.insert(kineto::ActivityType::CUDA);
  return wanted;
}

void refuse_other_profiler() {
  auto& api = libkineto::api();
  if (process_profiler() || (api.isProfilerInitialized() && api.activityProfiler().isActive()))
    throw UsageError({"profile", "another profiler records this process", "one profiler at a time",
                      "stop the other profiler first"});
}

// Kineto treats any other receiver of the calling thread's memory reports, such as a MemoryMeter, as another profiler.
template <class Call>
void run_on_plain_thread(const Call& call) {
  std::exception_ptr failure;
  std::thread([&] {
    try {
      call();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

void prepare() {
  // It reports an error if it is prepared by a thread other than the one that registered LibTorch.
  auto& api = libkineto::api();
  if (!api.isProfilerInitialized() && api.client()) api.registerClient(api.client());
  torch::autograd::profiler::prepareProfiler(settings(), activities());
}

template <class Clock>
std::int64_t nanoseconds_of() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

// Nanoseconds of the steady clock minus those of the system clock, which Kineto uses. Takes the fastest of
// several readings.
std::int64_t steady_ahead() {
  std::int64_t ahead = 0, fastest = std::numeric_limits<std::int64_t>::max();
  for (int reading = 0; reading < 8; ++reading) {
    const auto before = nanoseconds_of<std::chrono::steady_clock>();
    const auto system = nanoseconds_of<std::chrono::system_clock>();
    const auto took = nanoseconds_of<std::chrono::steady_clock>() - before;
    if (took > fastest) continue;
    fastest = took;
    ahead = before + took / 2 - system;
  }
  return ahead;
}

// Bytes of an element by Kineto's name of its type; nothing for arguments that are not tensors.
std::optional<std::int64_t> item_of(const std::string& type) {
  static const auto sizes = [] {
    std::unordered_map<std::string, std::int64_t> all;
    for (int i = 0; i < static_cast<int>(c10::ScalarType::Undefined); ++i) {
      const auto meta = c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(i));
      all.emplace(std::string(meta.name()), static_cast<std::int64_t>(meta.itemsize()));
    }
    return all;
  }();
  const auto found = sizes.find(type);
  if (found == sizes.end()) return std::nullopt;
  return found->second;
}

void add_tensors(ProfiledOperator& one, const KinetoEvent& event) {
  const auto shapes = event.shapes();
  const auto types = event.dtypes();
  for (std::size_t i = 0; i < shapes.size() && i < types.size(); ++i) {
    const auto item = item_of(types[i]);
    if (!item) continue;
    one.shapes += fmt::format("{}[{}]", one.shapes.empty() ? "" : ", ", fmt::join(shapes[i], ", "));
    std::int64_t bytes = *item;
    for (const std::int64_t extent : shapes[i]) bytes *= extent;
    one.bytes += bytes;
  }
}

bool is_memory(const KinetoEvent& event) { return event.name() == "[memory]"; }

bool is_operator(const KinetoEvent& event) {
  const auto type = static_cast<libkineto::ActivityType>(event.activityType());
  return event.deviceType() == c10::DeviceType::CPU && !event.isHiddenEvent() &&
         (type == libkineto::ActivityType::CPU_OP || type == libkineto::ActivityType::USER_ANNOTATION);
}

// The events of one rank.
class Share {
 public:
  Share(std::uint64_t thread, std::int64_t ahead, double joined) : thread_(thread), ahead_(ahead), joined_(joined) {}

  Profile of(const std::vector<KinetoEvent>& events) {
    std::map<std::uint64_t, std::vector<const KinetoEvent*>> threads;
    for (const auto& event : events)
      if (is_operator(event) || (is_memory(event) && event.startThreadId() == thread_))
        threads[event.startThreadId()].push_back(&event);
    for (auto& [thread, of_thread] : threads) {
      std::stable_sort(of_thread.begin(), of_thread.end(), [](const KinetoEvent* a, const KinetoEvent* b) {
        return a->startNs() != b->startNs() ? a->startNs() < b->startNs() : a->endNs() > b->endNs();
      });
      add_thread(thread, of_thread);
    }
    put_in_order();
    for (const auto& event : events) add_kernel(event);
    return std::move(profile_);
  }

 private:
  struct Open {
    std::uint64_t end;
    std::optional<std::size_t> place;  // null if it belongs to another rank
  };

  // A nanosecond count of the system clock has more digits than a double.
  double seconds(std::uint64_t nanoseconds) const {
    return static_cast<double>(static_cast<std::int64_t>(nanoseconds) + ahead_) * kNanosecond;
  }

  // An operator on another thread belongs to this rank if it is the backward of this rank's forward operator, or runs
  // within such an operator: autograd has one thread per GPU.
  void add_thread(std::uint64_t thread, const std::vector<const KinetoEvent*>& events) {
    std::vector<Open> open;
    for (const KinetoEvent* event : events) {
      while (!open.empty() && open.back().end <= event->startNs()) open.pop_back();
      if (is_memory(*event)) {
        for (const Open& around : open)
          if (around.place) profile_.operators[*around.place].memory += event->nBytes();
        continue;
      }
      const bool mine =
          thread == thread_ || (open.empty() ? event->fwdThreadId() == thread_ : open.back().place.has_value());
      // Wrapped groups wait for the works of the inner groups; this counts as one wait.
      const bool again = mine && !open.empty() && open.back().place && event->name() == "gantry::wait" &&
                         profile_.operators[*open.back().place].name == "gantry::wait";
      if (again || seconds(event->startNs()) < joined_) continue;
      Open entered{event->endNs(), std::nullopt};
      if (mine) entered.place = add_operator(*event, static_cast<int>(open.size()));
      open.push_back(entered);
    }
  }

  std::size_t add_operator(const KinetoEvent& event, int depth) {
    ProfiledOperator one{
        .name = event.name(), .depth = depth, .start = seconds(event.startNs()), .end = seconds(event.endNs())};
    add_tensors(one, event);
    numbers_.push_back(event.correlationId());
    profile_.operators.push_back(std::move(one));
    return profile_.operators.size() - 1;
  }

  void put_in_order() {
    std::vector<std::size_t> order(profile_.operators.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return profile_.operators[a].start < profile_.operators[b].start;
    });
    std::vector<ProfiledOperator> sorted;
    sorted.reserve(order.size());
    for (const std::size_t from : order) {
      places_.emplace(numbers_[from], sorted.size());
      sorted.push_back(std::move(profile_.operators[from]));
    }
    profile_.operators = std::move(sorted);
  }

  // Kernels, copies and fills have a link to the operator that started them.
  void add_kernel(const KinetoEvent& event) {
    if (event.deviceType() == c10::DeviceType::CPU) return;
    const auto place = places_.find(event.linkedCorrelationId());
    if (place == places_.end()) return;
    profile_.kernels.push_back({event.name(), event.deviceIndex(), event.deviceResourceId(), seconds(event.startNs()),
                                seconds(event.endNs()), place->second});
  }

  const std::uint64_t thread_;
  const std::int64_t ahead_;
  const double joined_;
  Profile profile_;
  std::vector<std::uint64_t> numbers_;                     // Kineto's correlation number by operator
  std::unordered_map<std::uint64_t, std::size_t> places_;  // operators by that number
};

}  // namespace

// The session of the process. `mutex` guards all members and their targets until `events` is set.
struct KinetoRecording::Session {
  bool alone = false;                      // only one thread takes part
  int threads = 0;                         // threads that take part
  std::shared_ptr<ProfilerResult> events;  // set when the session has ended
  std::int64_t ahead = 0;                  // value of steady_ahead() then

  static std::mutex mutex;
  static std::shared_ptr<Session> current;
  static bool ready;  // warmed up, but not started

  void end() {
    if (events) return;
    run_on_plain_thread([this] { events = torch::autograd::profiler::disableProfiler(); });
    ahead = steady_ahead();
    if (current.get() == this) current.reset();
  }
};
std::mutex KinetoRecording::Session::mutex;
std::shared_ptr<KinetoRecording::Session> KinetoRecording::Session::current;
bool KinetoRecording::Session::ready = false;

void KinetoRecording::keep_quiet() { setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0); }

void KinetoRecording::warm_up() {
  const std::lock_guard lock(Session::mutex);
  if (Session::ready || Session::current) return;
  refuse_other_profiler();
  run_on_plain_thread(prepare);
  Session::ready = true;
}

std::shared_ptr<KinetoRecording::Session> KinetoRecording::begin(bool alone) {
  const bool ready = std::exchange(Session::ready, false);
  if (!ready) refuse_other_profiler();
  run_on_plain_thread([ready] {
    if (!ready) prepare();
    torch::autograd::profiler::enableProfiler(
        settings(), activities(),
        {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
  });
  auto session = std::make_shared<Session>();
  session->alone = alone;
  return session;
}

std::shared_ptr<KinetoRecording::Session> KinetoRecording::join(bool alone) {
  const std::lock_guard lock(Session::mutex);
  auto& current = Session::current;
  if (!current)
    current = begin(alone);
  else if (alone || current->alone)
    throw UsageError({"profile",
                      "another thread of this process is profiled, but the two threads have no common barrier",
                      "threads with a common barrier", "pass the Profiler a barrier of all threads"});
  ++current->threads;
  MemoryMeter::set_secondary_reporter(process_profiler());
  return current;
}

KinetoRecording::KinetoRecording(Joining, std::function<void()> meet)
    : meet_(std::move(meet)), session_(join(!meet_)), thread_(at::RecordFunction::currentThreadId()) {}

// The calling thread has joined, and its part is destroyed if the barrier throws.
KinetoRecording::KinetoRecording(std::function<void()> meet) : KinetoRecording(Joining{}, std::move(meet)) {
  if (!meet_) return;
  joined_ = steady_seconds();
  const at::DisableRecordFunctionGuard unseen;
  meet_();
}

// Operations in progress on other threads end before these leave: no thread is within a recorded operator when the last
// one leaves.
KinetoRecording::~KinetoRecording() {
  if (!session_) return;
  MemoryMeter::set_secondary_reporter(nullptr);
  const std::lock_guard lock(Session::mutex);
  if (auto* state = process_profiler(); state && !session_->events) state->removeCallback();
  if (--session_->threads == 0) session_->end();
}

Profile KinetoRecording::take() {
  MemoryMeter::set_secondary_reporter(nullptr);
  if (torch::cuda::is_available()) torch::cuda::synchronize();  // otherwise the last kernels would be missing
  {
    const at::DisableRecordFunctionGuard unseen;
    if (meet_) meet_();
    const std::lock_guard lock(Session::mutex);
    session_->end();
    --session_->threads;
  }
  const auto session = std::exchange(session_, nullptr);
  return Share(thread_, session->ahead, joined_).of(session->events->events());
}

}  // namespace gantry
