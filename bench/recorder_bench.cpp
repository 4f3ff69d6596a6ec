// Measures the cost of the flight recorder: seconds per operation between two ranks with and without it,
// alternating within one run, and their ratio. Prints one JSON line per operation. Run directly it measures
// threads, under `mpirun -n 2` processes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "gantry/comm/observed_backend.h"
#include "gantry/diagnosis/rank_recorder.h"
#include "gantry/launch/launch.h"
#include "gantry/tensors/libtorch.h"

namespace {

using namespace gantry;

constexpr std::int64_t kBytes[] = {64, 4 << 10, 1 << 20};
constexpr int kRounds = 15;

double seconds_of(int calls, const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void compare(World& world, const char* operation, std::int64_t bytes, const std::function<void(ProcessGroup&)>& call,
             ProcessGroup& plain, ProcessGroup& recorded) {
  const int calls = bytes > (64 << 10) ? 100 : 2000;
  std::vector<double> without, with;
  for (int round = 0; round < kRounds; ++round) {
    without.push_back(seconds_of(calls, [&] { call(plain); }));
    with.push_back(seconds_of(calls, [&] { call(recorded); }));
  }
  if (!world.is_main()) return;
  std::printf(
      "{\"backend\": \"%s\", \"op\": \"%s\", \"bytes\": %lld, \"seconds\": %.3e, \"recorded\": %.3e, \"ratio\": "
      "%.3f}\n",
      world.backend().name(), operation, static_cast<long long>(bytes), median(without), median(with),
      median(with) / median(without));
  std::fflush(stdout);
}

void ping_pong(ProcessGroup& group, const torch::Tensor& tensor) {
  const TensorSpec spec{tensor.sizes().vec(), tensor.scalar_type()};
  if (group.rank() == 0) {
    group.hand_over(tensor, 1, {}).wait();
    group.recv(spec, 1, {}).wait();
  } else {
    group.recv(spec, 0, {}).wait();
    group.hand_over(tensor, 0, {}).wait();
  }
}

void measure(World& world) {
  ObservedBackend recording(world.backend(), std::make_shared<recorder::RankRecorder>(
                                                 recorder::Identity{.rank = world.rank(), .ranks = 2}, 1024));
  const auto plain = world.backend().make_group("plain", {0, 1});
  const auto recorded = recording.make_group("recorded", {0, 1});
  if (world.is_main()) {
    recorder::RankRecorder ring({.rank = 0, .ranks = 2}, 1024);
    std::uint64_t making = 0;
    const int group = ring.begin_group("alone", {0, 1}, making);
    const std::int64_t shape[] = {8, 128, 256};
    const double alone = seconds_of(100'000, [&] {
      const ObservedCall call{.group = group, .kind = OperationKind::kAllReduce, .dtype = "float32", .shape = shape};
      ring.finish(ring.post(call), recorder::State::kDone);
    });
    std::printf("{\"op\": \"record an operation\", \"seconds\": %.3e}\n", alone);
  }
  for (const std::int64_t bytes : kBytes) {
    torch::Tensor tensor = torch::zeros({bytes / 4});
    compare(
        world, "send there and back", bytes, [&](ProcessGroup& group) { ping_pong(group, tensor); }, *plain, *recorded);
    compare(
        world, "all_reduce", bytes, [&](ProcessGroup& group) { group.all_reduce(tensor).wait(); }, *plain, *recorded);
  }
}

}  // namespace

int main() {
  Config config;
  config.parallel.tensor = 2;
  config.comm.recorder = 0;  // this program wraps the backend itself
  return launch(config, measure);
}
