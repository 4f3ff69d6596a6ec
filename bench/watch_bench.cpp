// Measures the cost of monitoring per training step of a configuration (the demo's): the flight recorder and,
// between processes, heartbeats with the check for silent ranks. All of them are on, or all are off. Blocks
// of steps with and without monitoring alternate within one run. A JSON line has the ratios of wall time and
// of processor time, with intervals that contain them in 95 of 100 runs. Run directly it measures threads,
// under mpirun processes.
//   watch_bench [CONFIG.yaml [PAIRS]]
//
// The intervals show the noise of the machine. `share_by_these` is the same cost
// as a sum of its parts: the time to record one operation times the number of
// operations, and the background work of the ranks, measured while they wait.
//
// Heartbeats are sent ten times as often as in a real run, so that every block contains some. Deadlines of
// waits are a part of waiting and are on in both.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "gantry/booster/recipe.h"
#include "gantry/comm/control/control_plane.h"
#include "gantry/comm/observed_backend.h"
#include "gantry/core/base/steady_seconds.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/launch.h"
#include "gantry/tensors/libtorch.h"

namespace {

using namespace gantry;

constexpr int kStepsOfABlock = 5, kWarmUpSteps = 5, kResamples = 2000;
constexpr int kEntries = 1024;
constexpr double kHeartbeat = 0.1;

// Forwards every call to one of two groups of the same ranks.
class SwitchedGroup final : public ProcessGroup {
 public:
  SwitchedGroup(std::unique_ptr<ProcessGroup> plain, std::unique_ptr<ProcessGroup> recorded, const bool& is_on)
      : plain_(std::move(plain)), recorded_(std::move(recorded)), is_on_(is_on) {}
  int rank() const override { return plain_->rank(); }
  int size() const override { return plain_->size(); }
  Work send(const torch::Tensor& tensor, int to, const Tag& tag) override { return group().send(tensor, to, tag); }
  Work hand_over(const torch::Tensor& tensor, int to, const Tag& tag) override {
    return group().hand_over(tensor, to, tag);
  }
  Work recv(const TensorSpec& spec, int from, const Tag& tag) override { return group().recv(spec, from, tag); }
  Work start(const Collective& call) override { return group().start(call); }
  void abort(const std::string& reason) override { plain_->abort(reason); }

 private:
  ProcessGroup& group() { return is_on_ ? *recorded_ : *plain_; }
  std::unique_ptr<ProcessGroup> plain_, recorded_;
  const bool& is_on_;
};

class SwitchedBackend final : public Backend {
 public:
  SwitchedBackend(Backend& inner, std::shared_ptr<recorder::RankRecorder> recorder)
      : inner_(inner), recording_(inner, std::move(recorder)) {}
  const char* name() const override { return inner_.name(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override {
    auto plain = inner_.make_group(label, ranks);
    return std::make_unique<SwitchedGroup>(std::move(plain), recording_.make_group(label, ranks), is_on_);
  }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  bool has_ended(int rank) const override { return inner_.has_ended(rank); }
  void set_on(bool is_on) { is_on_ = is_on; }

 private:
  Backend& inner_;
  ObservedBackend recording_;
  bool is_on_ = false;
};

// The background threads of a rank that is a process: the
// one that answers requests for records, and heartbeats.
class Background {
 public:
  Background(ProcessGroup& sync, bool is_on)
      : recorder_({.folder = std::filesystem::temp_directory_path().string(),
                   .ranks = sync.size(),
                   .entries = kEntries,
                   .several_processes = is_on}) {
    if (!is_on) return;
    const auto describe = [](int rank) { return "rank " + std::to_string(rank); };
    const ControlOptions options{
        .rank = sync.rank(), .ranks = sync.size(), .heartbeat_seconds = kHeartbeat, .describe_rank = describe};
    const ControlEvents events{[](const JobFailure&) {}, [](const JobFailure&) {}};
    torch::Tensor place = torch::zeros({static_cast<std::int64_t>(1 + sizeof(JobToken))}, torch::kInt64);
    auto* numbers = place.data_ptr<std::int64_t>();
    if (sync.rank() == 0) {
      plane_ = ControlPlane::host(options, events, "127.0.0.1");
      const Rendezvous& meeting = plane_->meeting();
      numbers[0] = meeting.port;
      std::copy(meeting.token.begin(), meeting.token.end(), numbers + 1);
    }
    sync.broadcast(place, 0).wait();
    if (sync.rank() != 0) {
      Rendezvous meeting{.address = "127.0.0.1", .port = static_cast<int>(numbers[0])};
      std::transform(numbers + 1, numbers + 1 + meeting.token.size(), meeting.token.begin(),
                     [](std::int64_t byte) { return static_cast<JobToken::value_type>(byte); });
      plane_ = ControlPlane::join(options, events, meeting);
    }
    plane_->rendezvous();
  }
  ~Background() {
    if (plane_) plane_->leave();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

 private:
  recorder::RecordedJob recorder_;
  std::unique_ptr<ControlPlane> plane_;
};

struct Cost {
  double wall = 0, processor = 0;  // seconds per step, of all ranks together
};

Cost now() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return {steady_seconds(), static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec)};
}

class Bench {
 public:
  Bench(World& world, const Config& config)
      : world_(world),
        recorder_(std::make_shared<recorder::RankRecorder>(
            recorder::Identity{.rank = world.rank(), .ranks = world.size()}, kEntries)),
        backend_(world.backend(), recorder_),
        switched_(backend_, world.config(), world.mesh()),
        plugin_(new HybridParallelPlugin(switched_, config)),
        booster_(std::unique_ptr<Plugin>(plugin_)),
        processes_(world.backend().name() != std::string("local")) {
    std::vector<int> everyone;
    for (int rank = 0; rank < world.size(); ++rank) everyone.push_back(rank);
    sync_ = world.backend().make_group("sync", everyone);
    auto model = build_model(config);
    auto optimizer = build_optimizer(config, *model);
    boosted_ = booster_.boost(model, optimizer, build_criterion(config), build_loader(config));
    boosted_.model->train();
    for (int i = 0; i < kWarmUpSteps; ++i) step();
  }

  // Measures one block of steps.
  Cost measure(bool is_on) {
    std::optional<Background> extra;
    if (processes_) extra.emplace(*sync_, is_on);
    backend_.set_on(is_on);
    sync_->barrier().wait();
    const Cost begin = now();
    for (int i = 0; i < kStepsOfABlock; ++i) step();
    sync_->barrier().wait();
    const Cost end = now();
    backend_.set_on(false);
    Cost cost{(end.wall - begin.wall) / kStepsOfABlock, (end.processor - begin.processor) / kStepsOfABlock};
    // The ranks of one process share its clock.
    if (processes_) cost.processor = all_reduce_number(*sync_, cost.processor);
    steps_recorded_ += is_on ? kStepsOfABlock : 0;
    return cost;
  }

  // Processor seconds per second that the background threads of all ranks use while the ranks are idle.
  double next_to_a_second() {
    if (!processes_) return 0;
    const Background extra(*sync_, true);
    sync_->barrier().wait();
    const Cost begin = now();
    std::this_thread::sleep_for(std::chrono::seconds(3));
    const Cost end = now();
    return all_reduce_number(*sync_, (end.processor - begin.processor) / (end.wall - begin.wall));
  }

  double operations_a_step() const {
    const auto record = recorder_->snapshot();
    const auto groups = std::count_if(record.operations.begin(), record.operations.end(),
                                      [](const auto& one) { return one.kind == recorder::Kind::kMakeGroup; });
    const auto all = record.forgotten + record.operations.size() - (record.forgotten ? 0 : groups);
    return static_cast<double>(all) / std::max(1, steps_recorded_);
  }

 private:
  void step() {
    booster_.execute_pipeline(boosted_.loader->next(), boosted_, {.broadcast_loss = true});
    boosted_.optimizer->step();
    boosted_.optimizer->zero_grad();
  }

  World& world_;
  std::shared_ptr<recorder::RankRecorder> recorder_;
  SwitchedBackend backend_;
  World switched_;
  HybridParallelPlugin* plugin_;  // owned by booster_
  Booster booster_;
  Boosted boosted_;
  const bool processes_;
  std::unique_ptr<ProcessGroup> sync_;
  int steps_recorded_ = 0;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Ratio {
  double middle = 1, low = 1, high = 1;
};

// The median of the pairs' ratios, and its 95% interval by bootstrap resampling of the pairs.
Ratio ratio_of(const std::vector<Cost>& on, const std::vector<Cost>& off, double Cost::*which) {
  std::vector<double> ratios, medians;
  for (std::size_t i = 0; i < on.size(); ++i) ratios.push_back(on[i].*which / (off[i].*which));
  std::mt19937 random(1);
  std::uniform_int_distribution<std::size_t> any(0, ratios.size() - 1);
  for (int i = 0; i < kResamples; ++i) {
    std::vector<double> drawn;
    for (std::size_t k = 0; k < ratios.size(); ++k) drawn.push_back(ratios[any(random)]);
    medians.push_back(median(std::move(drawn)));
  }
  std::sort(medians.begin(), medians.end());
  return {median(ratios), medians[kResamples / 40], medians[kResamples - kResamples / 40]};
}

// A group whose operations take no time, so that only the code around them is measured.
class NothingToDo final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Work send(const torch::Tensor&, int, const Tag&) override { return Work(state_); }
  Work hand_over(const torch::Tensor&, int, const Tag&) override { return Work(state_); }
  Work recv(const TensorSpec&, int, const Tag&) override { return Work(state_); }
  Work start(const Collective&) override { return Work(state_); }
  void abort(const std::string&) override {}

 private:
  struct Waited final : Work::State {
    bool done() override { return false; }
    void wait() override {}
  };
  std::shared_ptr<Work::State> state_ = std::make_shared<Waited>();
};

class NothingToDoBackend final : public Backend {
 public:
  const char* name() const override { return "nothing"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::unique_ptr<ProcessGroup> make_group(const std::string&, const std::vector<int>&) override {
    return std::make_unique<NothingToDo>();
  }
  void abort(const std::string&) override {}
  bool has_ended(int) const override { return false; }
};

double seconds_of_calls(ProcessGroup& group) {
  constexpr int kCalls = 200'000;
  torch::Tensor tensor = torch::zeros({8, 128, 256});
  const double begin = now().processor;
  for (int i = 0; i < kCalls; ++i) group.all_reduce(tensor, ReduceOp::kSum).wait();
  return (now().processor - begin) / kCalls;
}

// Seconds per operation that recording adds: processor
// time of a recorded operation minus that of a plain one.
double seconds_to_record() {
  NothingToDoBackend backend;
  ObservedBackend recording(
      backend, std::make_shared<recorder::RankRecorder>(recorder::Identity{.rank = 0, .ranks = 2}, kEntries));
  const auto plain = backend.make_group("plain", {0, 1}), recorded = recording.make_group("recorded", {0, 1});
  double least = 1;
  for (int i = 0; i < 5; ++i) {
    const double with = seconds_of_calls(*recorded), without = seconds_of_calls(*plain);
    least = std::min(least, with - without);
  }
  return least;
}

void run(World& world, const Config& config, int pairs) {
  Bench bench(world, config);
  std::vector<Cost> on, off;
  for (int i = 0; i < pairs; ++i) {
    const bool on_first = i % 2 == 0;
    for (const bool is_on : {on_first, !on_first}) (is_on ? on : off).push_back(bench.measure(is_on));
  }
  const double extra = bench.next_to_a_second();
  if (!world.is_main()) return;
  std::vector<double> walls, processors;
  for (const Cost& one : off) walls.push_back(one.wall), processors.push_back(one.processor);
  const Ratio wall = ratio_of(on, off, &Cost::wall), processor = ratio_of(on, off, &Cost::processor);
  const double record = seconds_to_record(), operations = bench.operations_a_step();
  std::printf(
      "{\"backend\": \"%s\", \"ranks\": %d, \"pairs\": %d, \"seconds_a_step\": %.4f, \"wall_ratio\": [%.4f, %.4f, "
      "%.4f], \"processor_seconds_a_step\": %.4f, \"processor_ratio\": [%.4f, %.4f, %.4f], "
      "\"operations_a_step_and_rank\": %.0f, \"microseconds_to_record_one\": %.3f, \"beside_seconds_a_second\": %.6f, "
      "\"share_by_these\": %.5f}\n",
      world.backend().name(), world.size(), pairs, median(walls), wall.low, wall.middle, wall.high, median(processors),
      processor.low, processor.middle, processor.high, operations, 1e6 * record, extra,
      (record * operations * world.size() + extra * median(walls)) / median(processors));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Config config = Config::load(argc > 1 ? argv[1] : "examples/demo.yaml");
    config.comm.recorder = 0;  // this program wraps the backend itself
    config.comm.heartbeat_seconds = 0;
    config.comm.threads_per_rank = 1;
    const int pairs = argc > 2 ? std::atoi(argv[2]) : 150;
    config = resolve_model(std::move(config));
    return launch(config, [&](World& world) { run(world, config, std::max(pairs, 2)); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
