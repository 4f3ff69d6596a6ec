#include "gantry/pipeline/executor.h"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "gantry/schedule/generators/generator.h"
#include "gantry/schedule/simulate.h"
#include "gantry/schedule/validate.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/memory_meter.h"
#include "grid.h"
#include "program.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using schedule::Action;
using schedule::Executor;

// Stage s multiplies by its weight s + 2, and the last stage also sums. All results have a closed form.
class ProductRuntime final : public StageRuntime {
 public:
  ProductRuntime(int stages, std::vector<int> held, bool train, int delay_seed = 0)
      : stages_(stages), train_(train), random_(delay_seed), delays_(delay_seed > 0) {
    for (const int stage : held) weights_[stage] = torch::full({1}, stage + 2.0, torch::kFloat64).requires_grad_();
  }
  StageOutput forward(int stage, int microbatch, TensorDict input) override {
    delay();
    const torch::Tensor x =
        stage == 0 ? torch::full({3 + microbatch % 2}, microbatch + 1.0, torch::kFloat64) : input.at("x");
    if (stage > 0 && writes_) {
      const torch::NoGradGuard no_grad;
      x.add_(1);
    }
    if (stage > 0 && !writes_) EXPECT_EQ(x[0].item<double>(), (microbatch + 1.0) * product(0, stage));
    const torch::Tensor y = x * weights_.at(stage);
    if (stage + 1 < stages_) return {{{"x", y}, {"note", torch::tensor({stage, microbatch})}}, {}};
    last_ += y.sum().item<double>();
    return {{}, y.sum()};
  }
  TensorDict backward(int stage, int, const TensorDict& input, const StageOutput& output,
                      const TensorDict& gradients) override {
    delay();
    (void)stage;
    return run_backward(input, output, gradients);
  }
  // Keeps the weight's gradient until backward_weight().
  TensorDict backward_input(int stage, int microbatch, const TensorDict& input, const StageOutput& output,
                            const TensorDict& gradients) override {
    auto& gradient = weights_.at(stage).mutable_grad();
    if (!gradient.defined()) gradient = torch::zeros({1}, torch::kFloat64);
    const torch::Tensor before = gradient.clone();
    TensorDict given = backward(stage, microbatch, input, output, gradients);
    late_[{stage, microbatch}] = gradient - before;
    gradient = before;
    return given;
  }
  void backward_weight(int stage, int microbatch) override {
    weights_.at(stage).mutable_grad() += late_.at({stage, microbatch});
    late_.erase({stage, microbatch});
  }
  std::string shape_key(int microbatch) const override { return std::to_string(microbatch % 2) + (train_ ? "t" : "e"); }
  bool needs_gradients() const override { return train_; }

  double product(int begin, int end, int without = -1) const {
    double all = 1;
    for (int stage = begin; stage < end; ++stage) all *= stage == without ? 1 : stage + 2.0;
    return all;
  }
  void expect_gradients(int microbatches) const {
    double inputs = 0;
    for (int m = 0; m < microbatches; ++m) inputs += (m + 1.0) * (3 + m % 2);
    for (const auto& [stage, weight] : weights_)
      EXPECT_DOUBLE_EQ(weight.grad().item<double>(), inputs * product(0, stages_, stage));
  }
  std::map<int, torch::Tensor> weights_;
  std::map<std::pair<int, int>, torch::Tensor> late_;
  double last_ = 0;
  bool writes_ = false;  // into its input

 private:
  // Yields to other ranks a random number of times.
  void delay() {
    for (auto times = delays_ ? random_() % 60 : 0; times > 0; --times) std::this_thread::yield();
  }
  int stages_;
  bool train_;
  std::mt19937 random_;
  bool delays_;
};

// One schedule on one pipeline, trained twice and evaluated once.
void run_closed_form(const schedule::Schedule& made) {
  run_ranks({.pipeline = made.ranks()}, [&](World&, ProcessGroupMesh& mesh) {
    StageLink link(mesh["pp"]);
    const auto& held = made.stages_of_rank[mesh["pp"].rank()];
    Executor executor(schedule::lower(made), mesh["pp"].rank(), link);
    for (int step = 0; step < 2; ++step) {
      ProductRuntime runtime(made.stages(), held, true);
      executor.run(runtime);
      runtime.expect_gradients(made.microbatches);
      EXPECT_TRUE(runtime.late_.empty());
    }
    Executor forwards(schedule::lower(schedule::forward_only(made)), mesh["pp"].rank(), link);
    ProductRuntime evaluation(made.stages(), held, false);
    forwards.run(evaluation);
    for (const auto& [stage, weight] : evaluation.weights_) EXPECT_FALSE(weight.grad().defined());
  });
}

TEST(Executor, EveryScheduleGivesTheClosedForm) {
  const std::vector<int> counts = {1, 2, 3, 7};
  const std::size_t parts = are_ranks_on_devices() ? 4 : 2;
  for (const auto& generator : schedule::generators())
    for (int chunks = generator.default_chunks; chunks <= std::min(3, generator.max_chunks); ++chunks)
      for (std::size_t ranks = 1; ranks <= 4; ++ranks)
        for (const int microbatches : turn_of(ranks + static_cast<std::size_t>(chunks), parts, counts)) {
          SCOPED_TRACE(generator.name + " over " + std::to_string(ranks) + " ranks, " + std::to_string(chunks) +
                       " chunks, " + std::to_string(microbatches) + " microbatches");
          run_closed_form(schedule::generate(generator.name, static_cast<int>(ranks), microbatches, chunks));
        }
}

// Any rank can abort a step after any number of actions. It then computes nothing more, all ranks reach the
// step's end, and the link stays usable.
TEST(Executor, AStepCanBeGivenUpAtAnyAction) {
  for (const auto& [name, chunks] : layouts_to_run<std::pair<std::string, int>>(
           {{"1f1b", 1}, {"gpipe", 1}, {"zb_h1", 1}, {"interleaved_1f1b", 2}, {"zb_v", 2}})) {
    const auto made = schedule::generate(name, 3, 4, chunks);
    run_ranks({.pipeline = 3}, [&, what = name](World& world, ProcessGroupMesh& mesh) {
      const int me = mesh["pp"].rank();
      const auto times = schedule::action_times(world.device());
      StageLink link(mesh["pp"]);
      Executor executor(schedule::lower(made), me, link);
      const auto full_step = [&] {
        ProductRuntime runtime(made.stages(), made.stages_of_rank[me], true);
        EXPECT_TRUE(executor.run(runtime));
        runtime.expect_gradients(made.microbatches);
      };
      for (int rank = 0; rank < 3; ++rank)
        for (std::size_t last = 0; last < made.actions[rank].size(); ++last) {
          SCOPED_TRACE(what + ": rank " + std::to_string(rank) + " after " + std::to_string(last) + " actions");
          ProductRuntime runtime(made.stages(), made.stages_of_rank[me], true);
          std::size_t asked = 0, computed = 0;
          const bool finished = executor.run(runtime, times.get(), [&] { return asked++ == last && me == rank; });
          for (const auto& timed : times->take()) computed += timed.action.is_compute();
          if (me == rank) EXPECT_FALSE(finished);
          if (me == rank) EXPECT_EQ(computed, last);
          if (rank == 0 && last == 0) EXPECT_EQ(computed, 0u) << "nothing came to compute with";
        }
      full_step();
    });
  }
}

TEST(Executor, SplitBackwardsThatWaitForTheEnd) {
  run_closed_form(schedule::from_csv("0F0,0F1,0I0,0I1,0W1,0W0\n1F0,1I0,1F1,1I1,1W0,1W1\n", "by hand"));
}

TEST(Executor, StagesThatGoForthAndBackMeetOnOneRank) {
  run_closed_form(
      schedule::from_csv("0F0,3F0,3I0,0F1,3F1,3B1,0B0,3W0,0B1\n1F0,2F0,2B0,1F1,2F1,1B0,2B1,1B1\n", "by hand"));
}

TEST(Executor, StagesOfOneRankHandOverWithoutMessages) {
  // Rank 0 has stages 0, 1 and 3; rank 1 has stage 2.
  const auto made = schedule::from_csv("0F0,1F0,0F1,1F1,3F0,3B0,3F1,3B1,1B0,0B0,1B1,0B1\n2F0,2F1,2B0,2B1\n", "by hand");
  schedule::validate(made);
  run_ranks({.pipeline = 2}, [&](World&, ProcessGroupMesh& mesh) {
    StageLink link(mesh["pp"]);
    Executor executor(schedule::lower(made), mesh["pp"].rank(), link);
    ProductRuntime runtime(4, made.stages_of_rank[mesh["pp"].rank()], true);
    executor.run(runtime);
    runtime.expect_gradients(2);
  });
}

// PyTorch's own file, with merged backwards on one rank and split ones on the other.
TEST(Executor, RunsPyTorchsCsv) {
  const char* given = std::getenv("GANTRY_GOLDENS");
  const std::string folder = given ? given : std::string(GANTRY_SOURCE_DIR) + "/../shared/goldens";
  const std::string file = folder + "/schedules/pytorch_zb1p_2rank_2stagep_compute.csv";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "needs GANTRY_GOLDENS, the directory with schedules of PyTorch";
  run_closed_form(schedule::load_csv(file));
}

TEST(Executor, RunsAScheduleThatWasWrittenAsCsv) {
  run_closed_form(schedule::from_csv(schedule::to_csv(schedule::generate("zb_v", 2, 4)), "zb_v"));
}

TEST(Executor, AStageThatWritesIntoItsInputIsNamed) {
  run_ranks({.pipeline = 2}, [&](World&, ProcessGroupMesh& mesh) {
    StageLink link(mesh["pp"]);
    const auto made = schedule::generate("gpipe", 2, 1);
    Executor executor(schedule::lower(schedule::forward_only(made)), mesh["pp"].rank(), link);
    ProductRuntime runtime(2, made.stages_of_rank[mesh["pp"].rank()], false);
    runtime.writes_ = true;
    if (mesh["pp"].rank() == 0) {
      executor.run(runtime);
      return;
    }
    try {
      executor.run(runtime);
      ADD_FAILURE() << "was not found";
    } catch (const UsageError& error) {
      EXPECT_NE(
          std::string(error.what()).find("stage 1: the stage changed its input ('x', 'note') of microbatch 0 in place"),
          std::string::npos)
          << error.what();
    }
  });
}

// Each schedule in turn, with random delays on each rank:
// a thousand steps in total, or without GANTRY_LONG=1 120, and 60 on devices.
TEST(Executor, RandomDelaysOnEveryRankChangeNothing) {
  const auto& all = schedule::generators();
  const int steps = (is_long_form() ? 1000 : are_ranks_on_devices() ? 60 : 120) / static_cast<int>(all.size()) + 1;
  for (const auto& generator : all) {
    SCOPED_TRACE(generator.name);
    run_ranks({.pipeline = 4}, [&](World& world, ProcessGroupMesh& mesh) {
      StageLink link(mesh["pp"]);
      const auto made = schedule::generate(generator.name, 4, 6);
      Executor executor(schedule::lower(made), mesh["pp"].rank(), link);
      for (int step = 0; step < steps; ++step) {
        ProductRuntime runtime(made.stages(), made.stages_of_rank[mesh["pp"].rank()], true,
                               1 + step * 4 + world.rank());
        executor.run(runtime);
        runtime.expect_gradients(6);
      }
    });
  }
}

// Stages that keep activations of one size and nothing
// else, so that their memory is what the simulator counts.
class SizedRuntime final : public StageRuntime {
 public:
  SizedRuntime(int stages, std::int64_t bytes) : stages_(stages), bytes_(bytes) {}
  StageOutput forward(int stage, int microbatch, TensorDict) override {
    kept_[{stage, microbatch}] = torch::empty({bytes_}, torch::kUInt8);
    if (stage + 1 == stages_) return {};
    return {{{"x", torch::ones({1}).requires_grad_()}}, {}};
  }
  TensorDict backward(int stage, int microbatch, const TensorDict&, const StageOutput&, const TensorDict&) override {
    kept_.erase({stage, microbatch});
    return stage == 0 ? TensorDict() : TensorDict{{"x", torch::ones({1})}};
  }
  TensorDict backward_input(int stage, int, const TensorDict&, const StageOutput&, const TensorDict&) override {
    return stage == 0 ? TensorDict() : TensorDict{{"x", torch::ones({1})}};
  }
  void backward_weight(int stage, int microbatch) override { kept_.erase({stage, microbatch}); }
  std::string shape_key(int) const override { return "one"; }
  bool needs_gradients() const override { return true; }

 private:
  int stages_;
  std::int64_t bytes_;
  std::map<std::pair<int, int>, torch::Tensor> kept_;
};

TEST(Executor, MeasuredPeaksAreTheSimulators) {
  constexpr std::int64_t kBytes = 1 << 20;
  for (const auto& generator : schedule::generators())
    for (const int microbatches : {3, 9}) {
      SCOPED_TRACE(generator.name);
      const auto made = schedule::generate(generator.name, 4, microbatches);
      const auto simulated = schedule::simulate(made);
      run_ranks({.pipeline = 4}, [&](World&, ProcessGroupMesh& mesh) {
        const int rank = mesh["pp"].rank();
        StageLink link(mesh["pp"]);
        Executor executor(schedule::lower(made), rank, link);
        SizedRuntime runtime(made.stages(), kBytes);
        const MemoryMeter meter;
        executor.run(runtime);
        const double expected = static_cast<double>(kBytes) * simulated.peak_activations[rank];
        EXPECT_NEAR(static_cast<double>(meter.peak_bytes()), expected, 0.02 * expected) << rank;
      });
    }
}

TEST(Executor, EveryActionIsTimedInOrder) {
  run_ranks({.pipeline = 2}, [&](World& world, ProcessGroupMesh& mesh) {
    StageLink link(mesh["pp"]);
    const auto lowered = schedule::lower(schedule::generate("1f1b", 2, 3));
    Executor executor(lowered, mesh["pp"].rank(), link);
    ProductRuntime runtime(2, lowered.stages_of_rank[mesh["pp"].rank()], true);
    const auto times = schedule::action_times(world.device());
    executor.run(runtime, times.get());
    std::vector<Action> seen;
    double last = 0;
    for (const auto& [action, start, end] : times->take()) {
      EXPECT_LE(last, start);
      EXPECT_LE(start, end);
      last = end;
      seen.push_back(action);
    }
    EXPECT_EQ(seen, lowered.actions[mesh["pp"].rank()]);
    EXPECT_TRUE(times->take().empty());
  });
}

}  // namespace
}  // namespace gantry::testing
