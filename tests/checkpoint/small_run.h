// One rank of a small training program like a user's: a tiny model, and batches that depend only on the step.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/writer.h"
#include "gantry/launch/launch.h"
#include "gantry/plugins/gather.h"
#include "ranks.h"

namespace gantry::testing {

struct SmallRunOptions {
  Layout layout;
  int zero = 0;
  std::string schedule = "1f1b";
  int chunks = 1;
  std::string precision = "float64";
  std::string optimizer = "adamw";
  int layers = 4;
  double ema = 0;
  std::string vocabulary = "stages";
  int experts = 0;  // > 0: mixtral with this number of experts per layer, two per token
};

// A Llama with 2 KV heads, which the ranks of tp 4 share, or a Mixtral.
inline Config small_config(const SmallRunOptions& options) {
  Config config = layout_config(options.layout);
  config.model.policy = "llama";
  config.model.config_json =
      fmt::format(R"({{"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": {}, "num_attention_heads": 4,
          "num_key_value_heads": 2, "vocab_size": 29, "max_position_embeddings": 8, "tie_word_embeddings": true}})",
                  options.layers);
  if (options.experts > 0) {
    config.model.policy = "mixtral";
    config.model.config_json.insert(
        1, fmt::format(R"("num_local_experts": {}, "num_experts_per_tok": 2, )", options.experts));
    config.parallel.sequence_parallel = options.layout.tensor > 1;
  }
  config.parallel.zero = options.zero;
  config.parallel.vocabulary = options.vocabulary;
  config.schedule.name = options.schedule;
  config.schedule.chunks = options.chunks;
  config.schedule.microbatches = 2;
  config.precision = options.precision;
  config.optimizer.name = options.optimizer;
  config.train.ema = options.ema;
  config.optimizer.lr = 1e-2;
  config.comm.threads_per_rank = 1;
  return config;
}

class SmallRun {
 public:
  SmallRun(World& world, const Config& config)
      : config_(config), plugin_(new HybridParallelPlugin(world, config)), booster_(std::unique_ptr<Plugin>(plugin_)) {
    auto model = build_model(config);
    boosted_ = booster_.boost(model, build_optimizer(config, *model), build_criterion(config));
    boosted_.model->train();
  }

  void step(std::int64_t number) {
    booster_.execute_pipeline(replica_batch(number), boosted_);
    boosted_.optimizer->step();
    boosted_.optimizer->zero_grad();
  }

  // Returns the full weights on every rank. Collective.
  TensorDict weights() {
    boosted_.optimizer->wait();
    const auto& module = boosted_.model->stage_module();
    return gather_tensors(module, plugin_->stages(), mesh(),
                          [&](std::size_t i) { return module.parameters[i].tensor; });
  }

  SaveRequest request(const std::string& directory, std::int64_t step, int keep = 0) const {
    return {.directory = directory,
            .step = step,
            .config_text = config_.to_yaml(),
            .model_config = nlohmann::json::parse(config_.model.config_json),
            .policy = config_.model.policy,
            .keep = keep};
  }
  std::string save(const std::string& directory, std::int64_t step) {
    return save_checkpoint(request(directory, step), state(), mesh());
  }
  void load(const std::string& folder) { load_checkpoint(folder, state(), mesh()); }

  StateSource& state() { return plugin_->state(boosted_); }
  HybridParallelPlugin& plugin() { return *plugin_; }
  ProcessGroupMesh& mesh() { return plugin_->mesh(); }
  Boosted& boosted() { return boosted_; }
  const Config& config() const { return config_; }

 private:
  Batch replica_batch(std::int64_t step) {
    constexpr std::int64_t kSamples = 4, kTokens = 8;
    const torch::Tensor ids = (torch::arange(kSamples * kTokens).pow(2) * (step + 3) + step).remainder(29);
    Batch batch = make_batch({{"input_ids", ids.view({kSamples, kTokens})},
                              {"labels", (ids * 5 + 1).remainder(29).view({kSamples, kTokens})}});
    const std::int64_t share = kSamples / mesh().size("dp");
    batch = slice(batch, mesh().coordinate("dp") * share, (mesh().coordinate("dp") + 1) * share);
    batch.global_samples = kSamples;
    return batch;
  }

  Config config_;
  HybridParallelPlugin* plugin_;  // owned by booster_
  Booster booster_;
  Boosted boosted_;
};

// Runs the body on every rank. A failing rank fails the test.
inline void run_small(const SmallRunOptions& options, const std::function<void(SmallRun&)>& body) {
  const Config config = small_config(options);
  const int code = start_ranks()(config, [&](World& world) {
    SmallRun run(world, config);
    body(run);
    run.mesh().world_group().barrier().wait();
  });
  ASSERT_EQ(code, 0) << "a rank failed; its error is above";
}

}  // namespace gantry::testing
