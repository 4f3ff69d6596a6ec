// Small models with adapters, boosted in any layout.
#pragma once

#include <functional>

#include "gantry/booster/lora.h"
#include "gantry/booster/recipe.h"
#include "tiny_rig.h"

namespace gantry::testing {

struct LoraLayout {
  Layout layout = {};
  bool sequence_parallel = false;
  int zero = 0;
  std::string gather = "auto";  // for ZeRO 3
  std::string recompute = "none", schedule = "1f1b";
};

inline std::string describe(const LoraLayout& how) {
  return fmt::format("pp {} dp {} cp {} tp {} ep {} sequence {} zero {} gather {} {} {}", how.layout.pipeline,
                     how.layout.data, how.layout.context, how.layout.tensor, how.layout.expert, how.sequence_parallel,
                     how.zero, how.gather, how.recompute, how.schedule);
}

// The layouts of GANTRY_LONG=1: all combinations of tp, sequence parallelism, pp, cp and ZeRO level.
inline std::vector<LoraLayout> all_lora_layouts() {
  std::vector<LoraLayout> layouts;
  for (int tensor = 1; tensor <= 3; ++tensor)
    for (const bool sequence : {false, true})
      for (int pipeline = 1; pipeline <= 2; ++pipeline)
        for (int context = 1; context <= 2; ++context)
          for (int zero = -1; zero <= 3; ++zero)  // -1: without replicas
            if (!sequence || tensor > 1)
              layouts.push_back(
                  {.layout = {.pipeline = pipeline, .data = zero < 0 ? 1 : 2, .tensor = tensor, .context = context},
                   .sequence_parallel = sequence,
                   .zero = std::max(0, zero)});
  return layouts;
}

// Sets layout, float64, and a large eps, so that rounding does not decide the update where a gradient is zero.
inline void train_in_layout(Config& config, const LoraLayout& how) {
  config.precision = "float64";
  config.parallel.sequence_parallel = how.sequence_parallel;
  config.parallel.expert = how.layout.expert;
  config.parallel.zero = how.zero;
  config.parallel.gather = how.gather;
  config.parallel.bucket_mb = 0.002;
  config.schedule.name = how.schedule;
  config.schedule.recompute = how.recompute;
  config.schedule.microbatches = 2;
  config.optimizer.lr = 3e-2;
  config.optimizer.eps = 1e-3;
  config.optimizer.weight_decay = 0.1;
  config.comm.threads_per_rank = 1;
}

// A model whose heads three ranks cannot share evenly, with KV heads that ranks must share.
inline Config lora_config(const LoraLayout& how, double dropout = 0) {
  Config config = layout_config(how.layout);
  config.model.policy = "llama";
  config.model.config_json =
      R"({"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 24,)"
      R"( "intermediate_size": 26, "vocab_size": 31, "max_position_embeddings": 8})";
  config.lora = {.r = 3, .alpha = 5, .dropout = dropout, .target_modules = {"all-linear"}};
  train_in_layout(config, how);
  return config;
}

// A model of this family with adapters of embeddings, routers or stacks of experts.
inline Config parts_config(const char* family, const char* keys, std::vector<std::string> targets,
                           const LoraLayout& how) {
  Config config = lora_config(how);
  config.model.policy = family;
  config.model.config_json = keys;
  config.lora.target_modules = std::move(targets);
  return config;
}

constexpr const char* kMixtralOfFive =
    R"({"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 16, "vocab_size": 31,
        "intermediate_size": 11, "num_local_experts": 5, "num_experts_per_tok": 2, "max_position_embeddings": 8})";
constexpr const char* kTiedGpt2 =
    R"({"n_layer": 2, "n_head": 4, "n_embd": 24, "vocab_size": 31, "n_positions": 8, "resid_pdrop": 0,
        "embd_pdrop": 0, "attn_pdrop": 0})";

inline TensorDict lora_tokens(int step) {
  const torch::Tensor all = (torch::arange(6 * 8).view({6, 8}) * 11 + 5 * step) % 31;
  torch::Tensor labels = all.narrow(1, 1, 7).clone();
  labels[0].slice(0, 2).fill_(-100);  // the counts of the samples differ
  return {{"input_ids", all.narrow(1, 0, 7).contiguous()}, {"labels", labels}};
}

struct LoraRun {
  TensorDict gradients;  // gradients of the last step
  TensorDict weights;
  std::vector<double> losses, norms;
};

inline LoraRun run_lora(const Config& config, int steps = 3, const std::function<void(Rig&)>& prepare = {},
                        const std::function<void(Rig&)>& at_end = {}, int first_step = 0,
                        const std::function<TensorDict(int)>& batch_of = lora_tokens) {
  return on_layout<LoraRun>(config, [&](World& world) {
    Rig rig(world, config);
    if (prepare) prepare(rig);
    LoraRun run;
    for (int step = first_step; step < first_step + steps; ++step) {
      const auto& mesh = rig.plugin->mesh();
      const Batch mine = replica_part(make_batch(batch_of(step)), mesh.size(axis::kData), mesh.coordinate(axis::kData));
      run.losses.push_back(
          *rig.booster.execute_pipeline(mine, rig.boosted, {.return_loss = true, .broadcast_loss = true}).loss);
      run.norms.push_back(rig.boosted.optimizer->grad_norm());
      rig.boosted.optimizer->gradients().complete();
      run.gradients = rig.gradients();
      rig.boosted.optimizer->step();
      rig.boosted.optimizer->zero_grad();
    }
    rig.boosted.optimizer->wait();
    run.weights = rig.weights();
    if (at_end) at_end(rig);
    return run;
  });
}

// Like run_lora(), with the weights of model.path, which are loaded before `prepare`.
inline LoraRun run_from_base(const Config& config, int steps = 3, const std::function<void(Rig&)>& prepare = {},
                             const std::function<void(Rig&)>& at_end = {}, int first_step = 0) {
  return run_lora(
      config, steps,
      [&](Rig& rig) {
        load_weights(config, rig.boosted, rig.plugin->mesh());
        if (prepare) prepare(rig);
      },
      at_end, first_step);
}

inline void expect_same_run(const LoraRun& one, const LoraRun& other, const std::string& label) {
  SCOPED_TRACE(label);
  ASSERT_EQ(one.losses.size(), other.losses.size());
  for (std::size_t step = 0; step < one.losses.size(); ++step) {
    EXPECT_NEAR(one.losses[step], other.losses[step], 1e-10) << "step " << step;
    EXPECT_NEAR(one.norms[step], other.norms[step], 1e-10) << "step " << step;
  }
  ASSERT_EQ(one.gradients.size(), other.gradients.size());
  expect_close(one.gradients, other.gradients);
  ASSERT_EQ(one.weights.size(), other.weights.size());
  expect_close(one.weights, other.weights);
}

}  // namespace gantry::testing
