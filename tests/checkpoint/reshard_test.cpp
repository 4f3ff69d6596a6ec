// Every layout loads the checkpoints of every other one. Weights and optimizer state are bitwise identical,
// and the steps that follow match.
#include <cstring>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/format/catalog.h"
#include "gantry/tensors/libtorch.h"
#include "grid.h"
#include "program.h"
#include "same_state.h"
#include "small_run.h"

namespace gantry::testing {
namespace {

constexpr int kSaved = 2, kAfter = 3;  // steps before the save, and after it

const std::vector<SmallRunOptions> kLayouts = {
    {.layout = {}},
    {.layout = {.tensor = 4}},  // KV heads that two ranks share
    {.layout = {.pipeline = 2}},
    {.layout = {.data = 2}, .zero = 1},
    {.layout = {.pipeline = 2, .tensor = 2}},
    {.layout = {.pipeline = 2, .data = 2}, .schedule = "interleaved_1f1b", .chunks = 2},
    {.layout = {.data = 2, .tensor = 2}, .zero = 1},
    {.layout = {.pipeline = 2, .data = 2}, .zero = 1, .schedule = "zb_v", .chunks = 2},
    {.layout = {.data = 2, .context = 2}, .zero = 1},
    {.layout = {.pipeline = 2, .tensor = 2, .context = 2}},
    {.layout = {.data = 4}, .zero = 3},
    {.layout = {.pipeline = 2, .data = 2}, .zero = 3, .schedule = "zb_v", .chunks = 2},
    {.layout = {.pipeline = 2, .tensor = 2}, .vocabulary = "pipeline"},  // rows of the embedding on each stage
};

// Not divisible by two or three ranks.
constexpr int kExpertsOfLayer = 5;
const std::vector<SmallRunOptions> kLayoutsOfExperts = {
    {.layout = {}, .experts = kExpertsOfLayer},
    {.layout = {.data = 4, .expert = 2}, .zero = 3, .experts = kExpertsOfLayer},
    {.layout = {.pipeline = 2, .data = 2, .expert = 2}, .zero = 3, .schedule = "zb_h1", .experts = kExpertsOfLayer},
    {.layout = {.data = 2, .tensor = 2, .expert = 4}, .zero = 2, .experts = kExpertsOfLayer},
    {.layout = {.data = 2, .tensor = 3, .expert = 3}, .zero = 3, .experts = kExpertsOfLayer},
};

std::string name_of(const SmallRunOptions& options) {
  const Layout& sizes = options.layout;
  return fmt::format("tp {} pp {} dp {} cp {} ep {} zero {} {} chunks {} vocabulary {}", sizes.tensor, sizes.pipeline,
                     sizes.data, sizes.context, sizes.expert, options.zero, options.schedule, options.chunks,
                     options.vocabulary);
}

void expect_near(const TensorDict& expected, const TensorDict& actual, const std::string& label) {
  ASSERT_EQ(expected.size(), actual.size());
  for (const auto& [name, tensor] : expected) {
    const double difference = (actual.at(name) - tensor).abs().max().item<double>();
    EXPECT_LE(difference, 1e-10 * std::max(1.0, tensor.abs().max().item<double>())) << label << " " << name;
  }
}

class Reshard : public ::testing::Test {
 protected:
  std::string saved(std::size_t layout) const { return scratch_ / fmt::format("saved{}", layout); }

  // Trains, saves after kSaved steps and continues. Returns the final weights.
  TensorDict save(std::size_t layout) {
    TensorDict after;
    run_small(layouts_[layout], [&](SmallRun& run) {
      for (int step = 1; step <= kSaved; ++step) run.step(step);
      run.save(saved(layout), kSaved);
      for (int step = 1; step <= kAfter; ++step) run.step(kSaved + step);
      TensorDict weights = run.weights();
      if (run.mesh().rank() == 0) after = std::move(weights);
    });
    return after;
  }

  void load(std::size_t from, std::size_t to, const TensorDict& expected) {
    const std::string label = name_of(layouts_[from]) + " into " + name_of(layouts_[to]), again = scratch_ / "again";
    TensorDict after;
    run_small(layouts_[to], [&](SmallRun& run) {
      run.load(require_checkpoint(saved(from)));
      run.save(again, kSaved);
      for (int step = 1; step <= kAfter; ++step) run.step(kSaved + step);
      TensorDict weights = run.weights();
      if (run.mesh().rank() == 0) after = std::move(weights);
    });
    expect_same_state(saved(from), again, label);
    expect_near(expected, after, label);
  }

  // Each layout's checkpoint is loaded by some of the others, on devices by fewer, or by all of them with
  // GANTRY_LONG=1.
  void expect_each_loads_others(const std::vector<SmallRunOptions>& layouts) {
    layouts_ = layouts;
    const std::size_t parts = (layouts_.size() > 6 ? 4 : 2) * (are_ranks_on_devices() ? 2 : 1);
    for (std::size_t from = 0; from < layouts_.size() && !HasFailure(); ++from) {
      const TensorDict expected = save(from);
      for (std::size_t to = 0; to < layouts_.size() && !HasFailure(); ++to)
        if (to != from && is_turn(from + to, 1, parts)) load(from, to, expected);
    }
  }

 private:
  ScratchFolder scratch_;
  std::vector<SmallRunOptions> layouts_;
};

TEST_F(Reshard, EveryLayoutLoadsWhatOthersSaved) { expect_each_loads_others(kLayouts); }

TEST_F(Reshard, ExpertsOfEveryLayoutAreLoadedByOthers) { expect_each_loads_others(kLayoutsOfExperts); }

// Weights in bfloat16 with float32 master weights, saved with ZeRO 1 and loaded without it.
TEST_F(Reshard, MastersOfLowPrecisionAreLoadedByAnyLayout) {
  const SmallRunOptions zero{.layout = {.data = 2, .tensor = 2}, .zero = 1, .precision = "bfloat16"};
  const SmallRunOptions plain{.layout = {.pipeline = 2}, .precision = "bfloat16"};
  const ScratchFolder scratch;
  run_small(zero, [&](SmallRun& run) {
    run.save(scratch / "first", 0);  // before any step, the master weights are the weights
    run.step(1);
    run.save(scratch / "zero", 1);
  });
  run_small(plain, [&](SmallRun& run) {
    run.load(require_checkpoint(scratch / "zero"));
    run.save(scratch / "plain", 1);
  });
  expect_same_state(scratch / "zero", scratch / "plain", "bfloat16");
  // A run in float64 loads the master weights instead of the rounded weights.
  run_small({}, [&](SmallRun& run) {
    run.load(require_checkpoint(scratch / "zero"));
    const TensorDict masters = read_checkpoint_tensors(require_checkpoint(scratch / "zero"), "optimizer.master");
    for (const auto& [name, tensor] : run.weights())
      EXPECT_TRUE(torch::equal(tensor, masters.at(name).to(torch::kFloat64)));
  });
  TensorCatalog first = TensorCatalog::open(scratch / "first");
  const auto master = first.read("optimizer.master/norm.weight");
  float one = 0;
  std::memcpy(&one, master.data(), sizeof(one));
  EXPECT_EQ(one, 1.0F) << "a norm's first weight";
}

// One of the ranks that share a matrix holds its full momentum (Muon), or the averages of its rows and
// columns (Adafactor). The averages of adamw_bf16 are sharded like the parameters.
TEST_F(Reshard, StatesOfOtherOptimizersAreLoadedByAnyLayout) {
  using Run = std::pair<const char*, const char*>;
  for (const auto& [optimizer, precision] : layouts_to_run<Run>({{"muon", "float64"},
                                                                 {"muon", "bfloat16"},
                                                                 {"adafactor", "float64"},
                                                                 {"adafactor", "bfloat16"},
                                                                 {"adamw_bf16", "float64"},
                                                                 {"adamw_bf16", "bfloat16"}})) {
    const std::vector<SmallRunOptions> layouts = {
        {.layout = {.data = 2, .tensor = 2}, .zero = 1, .precision = precision, .optimizer = optimizer},
        {.layout = {.pipeline = 2, .tensor = 2}, .precision = precision, .optimizer = optimizer},
        {.layout = {.data = 2}, .zero = 2, .precision = precision, .optimizer = optimizer},
        {.layout = {.data = 2}, .zero = 3, .precision = precision, .optimizer = optimizer},
        {.precision = precision, .optimizer = optimizer}};
    const ScratchFolder scratch;
    TensorDict expected;
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      const std::string saved = scratch / fmt::format("saved{}", i);
      run_small(layouts[i], [&](SmallRun& run) {
        if (i > 0) run.load(require_checkpoint(scratch / "saved0"));
        for (int step = 1; i == 0 && step <= kSaved; ++step) run.step(step);
        run.save(saved, kSaved);
        run.step(kSaved + 1);
        TensorDict weights = run.weights();
        if (run.mesh().rank() == 0 && i == 0)
          expected = std::move(weights);
        else if (run.mesh().rank() == 0 && layouts[i].precision == "float64")
          expect_near(expected, weights, saved);
      });
      expect_same_state(scratch / "saved0", saved, saved);
    }
  }
}

// With ZeRO 3, ranks hold parameters as rows. The optimizers step full matrices and vectors, also where one rank has
// all rows: of experts with as many expert ranks as replicas, and of dense parameters with one replica.
TEST_F(Reshard, MatricesOfExpertsAreSteppedWhole) {
  for (const char* optimizer : {"muon", "adafactor"}) {
    const std::vector<SmallRunOptions> layouts = {
        {.optimizer = optimizer, .experts = 4},
        {.layout = {.data = 2, .expert = 2}, .zero = 3, .optimizer = optimizer, .experts = 4},
        {.layout = {.tensor = 4, .expert = 2}, .zero = 3, .optimizer = optimizer, .experts = 4}};
    const ScratchFolder scratch;
    TensorDict expected;
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      const std::string saved = scratch / fmt::format("saved{}", i);
      run_small(layouts[i], [&](SmallRun& run) {
        for (int step = 1; step <= kSaved; ++step) run.step(step);
        run.save(saved, kSaved);
        run.load(require_checkpoint(scratch / "saved0"));
        for (int step = 1; step <= kAfter; ++step) run.step(kSaved + step);
        TensorDict weights = run.weights();
        if (run.mesh().rank() != 0) return;
        if (i == 0)
          expected = std::move(weights);
        else
          expect_near(expected, weights, saved);
      });
    }
  }
}

// adamw_bf16 continues from the averages of adamw, rounded once, and adamw from those of adamw_bf16.
TEST_F(Reshard, AveragesOfAdamWAreLoadedInBfloat16AndTheReverse) {
  const ScratchFolder scratch;
  const std::string full = scratch / "full", rounded = scratch / "rounded", widened = scratch / "widened";
  run_small({.layout = {.data = 2}, .zero = 1}, [&](SmallRun& run) {
    for (int step = 1; step <= kSaved; ++step) run.step(step);
    run.save(full, kSaved);
  });
  run_small({.layout = {.tensor = 2}, .optimizer = "adamw_bf16"}, [&](SmallRun& run) {
    run.load(require_checkpoint(full));
    run.save(rounded, kSaved);
  });
  run_small({}, [&](SmallRun& run) {
    run.load(require_checkpoint(rounded));
    run.save(widened, kSaved);
  });
  for (const char* average : {"optimizer.exp_avg", "optimizer.exp_avg_sq"}) {
    const TensorDict before = read_checkpoint_tensors(require_checkpoint(full), average),
                     stored = read_checkpoint_tensors(require_checkpoint(rounded), average),
                     after = read_checkpoint_tensors(require_checkpoint(widened), average);
    ASSERT_FALSE(before.empty());
    for (const auto& [name, tensor] : before) {
      EXPECT_TRUE(torch::equal(stored.at(name), tensor.to(torch::kBFloat16))) << average << " " << name;
      EXPECT_TRUE(torch::equal(after.at(name), stored.at(name).to(torch::kFloat64))) << average << " " << name;
    }
  }
}

// A checkpoint of format version 2 from tp 3 x dp 2 with ZeRO 1 in bfloat16, whose ranks share KV heads.
// `one` is the same checkpoint, resharded to one rank by the program of that time.
TEST(FormerFormat, IsReadAndLoaded) {
  const std::string folder = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/checkpoint_v2/";
  expect_same_state(folder + "one", folder + "six", "as stored");
  for (const Layout layout : {Layout{.tensor = 2}, Layout{.data = 2, .tensor = 3}}) {
    SmallRunOptions options{.layout = layout, .zero = layout.data > 1 ? 2 : 0, .precision = "bfloat16"};
    Config config = small_config(options);
    config.model.config_json = R"({"hidden_size": 12, "tie_word_embeddings": true, "intermediate_size": 10,
        "num_hidden_layers": 1, "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 256,
        "max_position_embeddings": 32})";
    const ScratchFolder scratch;
    const int code = start_ranks()(config, [&](World& world) {
      SmallRun run(world, config);
      run.load(folder + "six");
      run.save(scratch / "again", 2);
      run.mesh().world_group().barrier().wait();
    });
    ASSERT_EQ(code, 0);
    expect_same_state(folder + "one", require_checkpoint(scratch / "again"), "tp " + std::to_string(layout.tensor));
  }
}

// Checkpoints from before release 0.1 have one step count, which is used for both.
TEST(StepCounts, OneStandsForBoth) {
  run_small({.layers = 1}, [](SmallRun& run) {
    nlohmann::json numbers = run.state().state_numbers();
    numbers["optimizer_steps"] = 5;
    numbers["optimizer_steps_taken"] = 3;
    run.state().load_state_numbers(numbers);
    EXPECT_EQ(run.state().state_numbers(), numbers);
    numbers.erase("optimizer_steps_taken");
    run.state().load_state_numbers(numbers);
    EXPECT_EQ(run.state().state_numbers().at("optimizer_steps"), 5);
    EXPECT_EQ(run.state().state_numbers().at("optimizer_steps_taken"), 5);
  });
}

}  // namespace
}  // namespace gantry::testing
