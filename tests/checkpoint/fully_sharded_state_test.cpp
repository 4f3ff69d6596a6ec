// Checkpoints of fully_shard(). Every number of ranks loads the checkpoints of every other number. Boosted
// models load them too, and fully_shard() loads the checkpoints of boosted models. Weights and optimizer
// state are bitwise identical, and the steps that follow match.
#include "gantry/plugins/fully_sharded_state.h"

#include <functional>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/nn/linear.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "same_state.h"
#include "small_run.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kRowWidth = 6;

// A model with a scalar parameter, a parameter that only some steps use, and a frozen layer.
struct RowsModel : torch::nn::Module {
  RowsModel() {
    for (int i = 0; i < 3; ++i) {
      up.push_back(register_module("up" + std::to_string(i), nn::Linear(kRowWidth, 10)));
      down.push_back(register_module("down" + std::to_string(i), nn::Linear(10, kRowWidth)));
    }
    scale = register_parameter("scale", torch::ones({}, torch::kFloat64));
    at_times = register_parameter("at_times", torch::zeros({2, 1, kRowWidth}, torch::kFloat64));
    for (auto& parameter : down[1]->parameters()) parameter.set_requires_grad(false);
  }
  torch::Tensor forward(torch::Tensor x, bool uses_all) {
    if (uses_all) x = x + at_times.sum({0, 1});
    for (std::size_t i = 0; i < up.size(); ++i) x = x + down[i](torch::tanh(up[i](x))) * scale;
    return x;
  }
  std::vector<nn::Linear> up, down;
  torch::Tensor scale, at_times;
};

std::shared_ptr<RowsModel> deferred_rows_model() {
  const DeferredInit deferred;
  auto model = std::make_shared<RowsModel>();
  set_dtype(*model, torch::kFloat64);
  return model;
}

torch::optim::AdamW adamw_of_rows(const FullySharded& sharded) {
  return torch::optim::AdamW(sharded.parameters(), torch::optim::AdamWOptions(1e-2).eps(1e-3));
}

// A custom training loop: its model, sharded over tp by a plan if tp has ranks, and over dp by rows.
class RowsRun {
 public:
  RowsRun(World& world, ProcessGroupMesh& mesh)
      : mesh_(mesh),
        device_(world.device()),
        model_(deferred_rows_model()),
        shards_(parallelize_module(*model_, mesh["tp"], {{"up*", Column{}}, {"down*", Row{}}})),
        sharded_(fully_shard(*model_, mesh["dp"], {.units = {"up*"}, .device = world.device()})),
        optimizer_(adamw_of_rows(sharded_)) {}

  // Trains on six samples that depend only on `number`. Only steps 2 and 5 use all parameters.
  void step(int number) {
    const std::int64_t mine = 6 / mesh_.size("dp");
    const torch::Tensor all = torch::sin(torch::arange(6 * kRowWidth, torch::kFloat64) * (1.5 + number)).view({6, -1});
    const torch::Tensor x = all.narrow(0, mine * mesh_.coordinate("dp"), mine).to(device_);
    model_->forward(x, number % 3 == 2).pow(2).mean().backward();
    optimizer_.step();
    optimizer_.zero_grad();
  }

  FullyShardedState state() { return {sharded_, mesh_, {.optimizer = &optimizer_, .sharded = shards_}}; }
  void save(const std::string& directory, std::int64_t step) {
    FullyShardedState mine = state();
    save_checkpoint({.directory = directory, .step = step}, mine, mesh_);
  }
  void load(const std::string& directory) {
    FullyShardedState mine = state();
    load_checkpoint(require_checkpoint(directory), mine, mesh_);
  }
  FullySharded& sharded() { return sharded_; }
  RowsModel& model() { return *model_; }

 private:
  ProcessGroupMesh& mesh_;
  torch::Device device_;
  std::shared_ptr<RowsModel> model_;
  std::vector<Placement> shards_;
  FullySharded sharded_;
  torch::optim::AdamW optimizer_;
};

void expect_near_state(const std::string& expected, const std::string& actual, const std::string& label) {
  for (const char* kind : {"model", "optimizer.exp_avg", "optimizer.exp_avg_sq"}) {
    const TensorDict a = read_checkpoint_tensors(require_checkpoint(expected), kind);
    const TensorDict b = read_checkpoint_tensors(require_checkpoint(actual), kind);
    ASSERT_EQ(a.size(), b.size()) << label;
    for (const auto& [name, tensor] : a)
      EXPECT_LE((tensor - b.at(name)).abs().max().item<double>(), 1e-10) << label << " " << kind << " " << name;
  }
}

TEST(FullyShardedState, EveryNumberOfRanksLoadsWhatEveryOtherSaved) {
  const std::vector<Layout> layouts = {{.data = 1}, {.data = 2}, {.data = 3}, {.data = 3, .tensor = 2}};
  const ScratchFolder scratch;
  const auto named = [&](const char* what, std::size_t i) { return scratch / (what + std::to_string(i)); };
  for (std::size_t from = 0; from < layouts.size(); ++from) {
    run_ranks(layouts[from], [&](World& world, ProcessGroupMesh& mesh) {
      RowsRun run(world, mesh);
      for (int step = 1; step <= 3; ++step) run.step(step);
      run.save(named("saved", from), 3);
      for (int step = 4; step <= 5; ++step) run.step(step);
      run.save(named("after", from), 5);
    });
    expect_near_state(named("after", 0), named("after", from), "saved by " + std::to_string(from));
    for (std::size_t to = 0; to < layouts.size() && !::testing::Test::HasFailure(); ++to) {
      const std::string label = std::to_string(from) + " into " + std::to_string(to);
      const std::string again = scratch / ("again " + label), went_on = scratch / ("went on " + label);
      run_ranks(layouts[to], [&](World& world, ProcessGroupMesh& mesh) {
        RowsRun run(world, mesh);
        run.step(6);
        run.load(named("saved", from));
        run.save(again, 3);
        for (int step = 4; step <= 5; ++step) run.step(step);
        run.save(went_on, 5);
      });
      expect_same_state(require_checkpoint(named("saved", from)), require_checkpoint(again), label);
      expect_near_state(named("after", from), went_on, label);
    }
  }
}

// Step counts, optimizer state and weights go from boosted models to fully_shard() and back.
TEST(FullyShardedState, BoostedModelsOfEveryZeroLoadItAndAreLoaded) {
  const ScratchFolder scratch;
  const std::vector<SmallRunOptions> boosted_runs = {
      {.layout = {.data = 2}, .zero = 3},
      {.layout = {.pipeline = 2, .data = 2}, .zero = 3, .schedule = "zb_v", .chunks = 2},
      {.layout = {.tensor = 2}}};
  for (const SmallRunOptions& options : boosted_runs) {
    const std::string label = std::to_string(&options - boosted_runs.data());
    const std::string boosted = scratch / ("boosted" + label), rows = scratch / ("rows" + label),
                      back = scratch / ("back" + label);
    run_small(options, [&](SmallRun& run) {
      for (int step = 1; step <= 2; ++step) run.step(step);
      run.save(boosted, 2);
    });
    const Config config = small_config({});
    run_ranks({.data = 3}, [&](World& world, ProcessGroupMesh& mesh) {
      auto model = build_model(config);
      auto sharded = fully_shard(*model, mesh["dp"], {.device = world.device()});
      auto optimizer = adamw_of_rows(sharded);
      FullyShardedState state(sharded, mesh, {.optimizer = &optimizer});
      load_checkpoint(require_checkpoint(boosted), state, mesh);
      save_checkpoint({.directory = rows, .step = 2}, state, mesh);
    });
    expect_same_state(require_checkpoint(boosted), require_checkpoint(rows), label);
    run_small(options, [&](SmallRun& run) {
      run.load(require_checkpoint(rows));
      run.save(back, 2);
    });
    expect_same_state(require_checkpoint(boosted), require_checkpoint(back), label);
  }
}

// Parameters that are unsharded during a load are gathered again at their next use.
TEST(FullyShardedState, UnshardedTensorsAreOldOnceRowsAreLoaded) {
  const ScratchFolder scratch;
  run_ranks({.data = 3}, [&](World& world, ProcessGroupMesh& mesh) {
    RowsRun run(world, mesh);
    const torch::NoGradGuard no_grad;
    const torch::Tensor x = torch::ones({2, kRowWidth}, torch::kFloat64).to(world.device());
    const torch::Tensor expected = run.model().forward(x, true).cpu();
    run.save(scratch / "saved", 0);
    for (auto& shard : run.sharded().parameters()) shard.zero_();
    run.sharded().unshard();
    EXPECT_TRUE(torch::equal(run.model().forward(x, true).cpu(), x.cpu()));
    run.load(scratch / "saved");
    EXPECT_TRUE(torch::equal(run.model().forward(x, true).cpu(), expected));
  });
}

TEST(FullyShardedState, WhatItCantIsRefusedByName) {
  run_ranks({.data = 2}, [&](World& world, ProcessGroupMesh& mesh) {
    RowsRun run(world, mesh);
    torch::optim::SGD plain(run.sharded().parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    FullyShardedState uncounted(run.sharded(), mesh, {.optimizer = &plain});
    EXPECT_EQ(thrown_by<UsageError>([&] { uncounted.state_numbers(); }),
              "FullyShardedState: the optimizer does not count its steps; expected the number of steps; set "
              "FullyShardedStateOptions::steps");
    const FullyShardedState counted(run.sharded(), mesh, {.optimizer = &plain, .steps = 4});
    EXPECT_EQ(counted.state_numbers().at("optimizer_steps_taken"), 4);
    const ProcessGroupMesh another(world);
    EXPECT_EQ(thrown_by<UsageError>([&] { run.sharded().placements(another); }),
              "fully_shard: the group of its parameters does not belong to a dense axis of this mesh; pass a group of "
              "the mesh, such as mesh[\"dp\"], to fully_shard, and that mesh to this call");
  });
}

}  // namespace
}  // namespace gantry::testing
