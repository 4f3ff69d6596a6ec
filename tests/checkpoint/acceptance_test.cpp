// Acceptance tests: the checkpoint workflows of NeuronX Distributed (A14 to A16) and OSLO (C10 to C14).
#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "gantry/booster/initialize.h"
#include "gantry/booster/parallelized_model.h"
#include "gantry/checkpoint/format/catalog.h"
#include "gantry/checkpoint/format/checkpoint_folder.h"
#include "gantry/checkpoint/format/parallelized.h"
#include "gantry/core/error.h"
#include "gantry/models/decoder.h"
#include "gantry/policies/model_map.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "small_run.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const SmallRunOptions kTwoByTwo{.layout = {.pipeline = 2, .tensor = 2}};

void expect_same(const TensorDict& expected, const TensorDict& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(torch::equal(tensor, actual.at(name))) << name;
}

// Trains two steps, on 2 x 2 ranks by default, and calls `body` on each rank. Returns the full weights after
// the steps.
TensorDict trained(const std::function<void(SmallRun&)>& body, const SmallRunOptions& options = kTwoByTwo) {
  TensorDict full;
  run_small(options, [&](SmallRun& run) {
    for (int step = 1; step <= 2; ++step) run.step(step);
    TensorDict weights = run.weights();
    if (run.mesh().rank() == 0) full = std::move(weights);
    body(run);
  });
  return full;
}

TEST(Acceptance, A14ASaveIsAFileForEachRankWithEveryTensorOnceAndTheUsersValues) {
  const ScratchFolder scratch;
  const std::string directory = scratch / "missing/parents/checkpoints";
  trained([&](SmallRun& run) {
    SaveRequest request = run.request(directory, 2);
    request.user = {{"epoch", 3}, {"loss", 2.5}, {"anything", {{"of", "the user's"}}}};
    save_checkpoint(request, run.state(), run.mesh());
  });
  const std::string folder = directory + "/step-000002";
  for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(fs::exists(folder + "/" + rank_file_name(rank))) << rank;
  std::uint64_t stored = 0, full = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const StoredFile file(folder + "/" + rank_file_name(rank));
    for (const auto& [name, tensor] : file.header().tensors) stored += tensor.end - tensor.begin;
  }
  const TensorCatalog catalog = TensorCatalog::open(folder);
  for (const auto& [key, tensor] : catalog.tensors()) full += tensor.bytes();
  EXPECT_EQ(stored, full);
  const auto info = read_checkpoint_info(folder);
  EXPECT_EQ(info.user["epoch"], 3);
  EXPECT_EQ(info.user["anything"]["of"], "the user's");
}

TEST(Acceptance, A15ALoadIsByKindStrictAndReshards) {
  const ScratchFolder scratch;
  const TensorDict expected = trained([&](SmallRun& run) { run.save(scratch / "c", 2); });
  const std::string folder = require_checkpoint(scratch / "c");
  expect_same(expected, read_checkpoint_tensors(folder, "model"));
  EXPECT_THAT(thrown_by<CheckpointError>([&] { read_checkpoint_tensors(folder, "modle"); }),
              HasSubstr("one of model, optimizer.exp_avg, optimizer.exp_avg_sq"));
  // Another tp and pp.
  TensorDict loaded;
  run_small({.layout = {.tensor = 4}}, [&](SmallRun& run) {
    run.load(folder);
    TensorDict weights = run.weights();
    if (run.mesh().rank() == 0) loaded = std::move(weights);
  });
  expect_same(expected, loaded);
  // Models with one layer less and with one layer more.
  for (const int layers : {3, 5})
    run_small({.layers = layers}, [&](SmallRun& run) {
      const std::string fault = thrown_by<CheckpointError>([&] { run.load(folder); });
      EXPECT_THAT(fault,
                  HasSubstr(layers == 5 ? "has no model of 'layers.4." : "including unexpected ones: layers.3."));
    });
  // A full, unsharded checkpoint is sliced by each rank.
  export_checkpoint(folder, scratch / "full");
  run_small(kTwoByTwo, [&](SmallRun& run) {
    Config config = run.config();
    config.model.path = scratch / "full";
    load_weights(config, run.boosted(), run.mesh());
    TensorDict weights = run.weights();
    if (run.mesh().rank() == 0) expect_same(expected, weights);
  });
}

TEST(Acceptance, A16StepsSaveLoadStepsAreTheStepsThemselvesToTheBit) {
  for (const SmallRunOptions& options : {kTwoByTwo, SmallRunOptions{.layout = {.data = 2, .tensor = 2}, .zero = 1}}) {
    const ScratchFolder scratch;
    TensorDict straight, resumed;
    run_small(options, [&](SmallRun& run) {
      for (int step = 1; step <= 6; ++step) run.step(step);
      TensorDict weights = run.weights();
      if (run.mesh().rank() == 0) straight = std::move(weights);
    });
    run_small(options, [&](SmallRun& run) {
      for (int step = 1; step <= 3; ++step) run.step(step);
      run.save(scratch / "c", 3);
    });
    run_small(options, [&](SmallRun& run) {
      run.load(require_checkpoint(scratch / "c"));
      for (int step = 4; step <= 6; ++step) run.step(step);
      TensorDict weights = run.weights();
      if (run.mesh().rank() == 0) resumed = std::move(weights);
    });
    expect_same(straight, resumed);
  }
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Acceptance, C10AFileForEveryTensorAndPipelineRankWithConfig) {
  const ScratchFolder scratch;
  scratch.write("file", "");
  fs::create_directories(scratch / "p/.parts");
  scratch.write("p/.parts/model_tp_9_pp_9.safetensors", "of a job that was killed while it saved");
  trained(
      [&](SmallRun& run) {
        save_parallelized(scratch / "p", run.boosted(), run.plugin(), run.config());
        save_parallelized(scratch / "p", run.boosted(), run.plugin(), run.config());  // again
      },
      {.layout = {.pipeline = 2, .data = 2, .tensor = 2}});
  EXPECT_EQ(names_in(scratch / "p"),
            (std::vector<std::string>{"config.json", "model_tp_0_pp_0.safetensors", "model_tp_0_pp_1.safetensors",
                                      "model_tp_1_pp_0.safetensors", "model_tp_1_pp_1.safetensors"}));
  const auto config = nlohmann::json::parse(read_file(scratch / "p/config.json"));
  EXPECT_EQ(config["torch_dtype"], "float64");
  EXPECT_EQ(config["architectures"][0], "LlamaForCausalLM");
  run_small({}, [&](SmallRun& run) {
    EXPECT_THAT(
        thrown_by<UsageError>([&] { save_parallelized(scratch / "file", run.boosted(), run.plugin(), run.config()); }),
        HasSubstr("is a file"));
  });
}

TEST(Acceptance, C11OneRankSavesTheMergedModel) {
  const ScratchFolder scratch;
  trained([&](SmallRun& run) { save_parallelized(scratch / "p", run.boosted(), run.plugin(), run.config()); },
          {.layout = {.data = 2}});
  EXPECT_EQ(names_in(scratch / "p"), (std::vector<std::string>{"config.json", "model.safetensors"}));
  fs::create_directories(scratch / "parts");
  scratch.write("parts/model_tp_0_pp_0.safetensors", "of two ranks");
  run_small({}, [&](SmallRun& run) {
    EXPECT_THAT(
        thrown_by<UsageError>([&] { save_parallelized(scratch / "parts", run.boosted(), run.plugin(), run.config()); }),
        HasSubstr("the directory already has model_tp_0_pp_0.safetensors, from a save in another form"));
  });
  EXPECT_EQ(names_in(scratch / "parts"), std::vector<std::string>{"model_tp_0_pp_0.safetensors"});
}

TEST(Acceptance, C12ANewModelLoadsWhatWasSavedAndSaysWhatIsMissing) {
  const ScratchFolder scratch;
  const TensorDict expected =
      trained([&](SmallRun& run) { save_parallelized(scratch / "p", run.boosted(), run.plugin(), run.config()); });
  // The same layout, and another one.
  for (const SmallRunOptions& options : {kTwoByTwo, SmallRunOptions{.layout = {.tensor = 4}}}) {
    TensorDict loaded;
    run_small(options, [&](SmallRun& run) {
      from_parallelized(scratch / "p", run.boosted(), run.plugin());
      TensorDict weights = run.weights();
      if (run.mesh().rank() == 0) loaded = std::move(weights);
    });
    expect_same(expected, loaded);
  }
  const auto fault = [&](int layers = 4) {
    std::string said;
    run_small({.layers = layers}, [&](SmallRun& run) {
      said = thrown_by<InputError>([&] { from_parallelized(scratch / "p", run.boosted(), run.plugin()); });
    });
    return said;
  };
  EXPECT_THAT(fault(5), HasSubstr("layers.4.self_attn.q_proj.weight"));
  EXPECT_THAT(fault(3), HasSubstr("unexpected (layers.3."));
  // The file names of OSLO 1 are accepted too.
  fs::rename(scratch / "p/model_tp_1_pp_0.safetensors", scratch / "p/pytorch_model_tp=1_pp=0.safetensors");
  EXPECT_EQ(fault(), "no error");
  fs::remove(scratch / "p/model_tp_0_pp_1.safetensors");
  EXPECT_THAT(fault(), HasSubstr("lacks model_tp_0_pp_1.safetensors; expected all of model_tp_0_pp_0.safetensors, "
                                 "model_tp_1_pp_0.safetensors, model_tp_0_pp_1.safetensors"));
  fs::remove(scratch / "p/model_tp_0_pp_0.safetensors");  // every remaining file lists all of them
  EXPECT_THAT(fault(), HasSubstr("lacks model_tp_0_pp_0.safetensors, model_tp_0_pp_1.safetensors; expected all of "
                                 "model_tp_0_pp_0.safetensors, model_tp_1_pp_0.safetensors, model_tp_0_pp_1"));
  const Outcome merged =
      run_program(gantry_program() + " checkpoint export " + (scratch / "p") + " " + (scratch / "merged"));
  EXPECT_EQ(merged.exit_code, 4) << merged.err;
  EXPECT_THAT(merged.err, HasSubstr("lacks model_tp_0_pp_0.safetensors"));
  fs::remove_all(scratch / "p");
  scratch.write("p", "");
  EXPECT_THAT(fault(), HasSubstr("is not a directory"));
}

TEST(Acceptance, C13MergedModelsAreOneFileThatOneDeviceLoads) {
  const ScratchFolder scratch;
  TensorDict after;
  const TensorDict expected = trained([&](SmallRun& run) {
    save_parallelized(scratch / "merged", run.boosted(), run.plugin(), run.config(), /*merge=*/true);
    save_parallelized(scratch / "parts", run.boosted(), run.plugin(), run.config());
    run.step(3);  // saving must not affect further steps
    TensorDict weights = run.weights();
    if (run.mesh().rank() == 0) after = std::move(weights);
  });
  EXPECT_EQ(names_in(scratch / "merged"), (std::vector<std::string>{"config.json", "model.safetensors"}));
  run_small({}, [&](SmallRun& run) {
    Config config = run.config();
    config.model.path = scratch / "merged";
    load_weights(config, run.boosted(), run.mesh());
    expect_same(expected, run.weights());
  });
  TensorDict undisturbed;
  run_small(kTwoByTwo, [&](SmallRun& run) {
    for (int step = 1; step <= 3; ++step) run.step(step);
    TensorDict weights = run.weights();
    if (run.mesh().rank() == 0) undisturbed = std::move(weights);
  });
  expect_same(undisturbed, after);
  // The command line merges the parts later, without ranks.
  const Outcome merged =
      run_program(gantry_program() + " checkpoint export " + (scratch / "parts") + " " + (scratch / "later"));
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_TRUE(read_file(scratch / "later/model.safetensors") == read_file(scratch / "merged/model.safetensors"));
}

TEST(Acceptance, C14ALiveShardedModelBecomesADenseOne) {
  const auto dense_of = [](const Config& config) {
    auto model = build_model(config);
    materialize(*model, 99);
    return model;
  };
  run_small(kTwoByTwo, [&](SmallRun& run) {
    run.step(1);
    const auto dense = dense_of(run.config());
    deparallelize(run.boosted(), run.plugin(), *dense);
    TensorDict full;
    for (const auto& [tensor, names] : ModelMap(*dense).parameters) full.set(names.front(), tensor);
    expect_same(run.weights(), full);
  });
  // The same for a model of initialize(): through files, and back to one device.
  const ScratchFolder scratch;
  const std::string path = scratch.write("gantry.yaml", "parallel: {tensor: 2}\n");
  const Config config = small_config({.layout = {.tensor = 2}});
  const auto keys = nlohmann::json::parse(config.model.config_json);
  ASSERT_EQ(start_ranks()(config,
                          [&](World&) {
                            auto model = build_model(config);
                            auto [booster, boosted] = initialize(*model, path);
                            save_parallelized(scratch / "p", boosted, booster.plugin(), keys, {.family = "llama"});
                            auto again = build_model(config);
                            auto [other_booster, other_boosted] = initialize(*again, path);
                            for (auto& parameter : again->parameters()) parameter.detach().zero_();
                            from_parallelized(scratch / "p", other_boosted, other_booster.plugin());
                            const auto dense = dense_of(config), other = dense_of(config);
                            deparallelize(boosted, booster.plugin(), *dense);
                            deparallelize(other_boosted, other_booster.plugin(), *other);
                            for (std::size_t i = 0; i < dense->parameters().size(); ++i)
                              EXPECT_TRUE(torch::equal(dense->parameters()[i], other->parameters()[i])) << i;
                            EXPECT_GT(dense->parameters()[0].abs().max().item<double>(), 0);
                            booster.mesh().world_group().barrier().wait();
                          }),
            0);
}

}  // namespace
}  // namespace gantry::testing
