// Parameters that are frozen and unfrozen during a run, compared with a plain loop on one device.
#include <nlohmann/json.hpp>
#include <set>

#include "gantry/models/decoder.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"
#include "tiny_rig.h"

namespace gantry::testing {
namespace {

using Frozen = std::function<bool(const std::string& name, int step)>;

bool begins_with(const std::string& name, std::initializer_list<const char*> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const char* prefix) { return name.starts_with(prefix); });
}

// Freezes the full first half of the model at first, so that the output of the first stage requires no
// gradient. Later steps freeze nothing, then the end of the model, then one layer in the middle.
bool by_halves(const std::string& name, int step) {
  if (step < 2) return begins_with(name, {"wte", "wpe", "h.0", "h.1"});
  if (step == 3 || step == 4) return begins_with(name, {"h.3", "ln_f", "lm_head"});
  return step == 5 && begins_with(name, {"h.1"});
}

// Freezes the tied embedding, which the first and the last stage hold.
bool the_tie(const std::string& name, int step) { return step != 2 && step != 3 && begins_with(name, {"wte", "h.2"}); }

constexpr int kFrozenSteps = 7;

Config frozen_config(const Parallelism& how, bool tied) {
  Config config = tiny(how.layout);
  config.model.config_json.insert(1, tied ? R"("tie_word_embeddings": true, )" : R"("tie_word_embeddings": false, )");
  config.schedule.name = how.schedule;
  config.schedule.recompute = how.recompute;
  config.parallel.zero = how.zero;
  config.parallel.bucket_mb = 0.004;
  // A large eps, so that rounding does not decide the update where a gradient is zero.
  config.optimizer.eps = 1e-3;
  config.optimizer.weight_decay = 0.1;
  config.comm.threads_per_rank = 1;
  return config;
}

struct FrozenRun {
  TensorDict first, last;  // weights
  std::vector<double> losses;
};

FrozenRun run_frozen(const Config& config, const Frozen& frozen) {
  return on_layout<FrozenRun>(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto model = build_model(config);
    for (auto& item : model->named_parameters()) item.value().set_requires_grad(!frozen(item.key(), 0));
    auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy());
    const auto& module = boosted.model->stage_module();
    const auto weights = [&] {
      boosted.optimizer->wait();
      return gather_tensors(module, plugin->stages(), plugin->mesh(),
                            [&](std::size_t i) { return module.parameters[i].tensor; });
    };
    FrozenRun run{.first = weights()};
    for (int step = 0; step < kFrozenSteps; ++step) {
      auto own = model->named_parameters();  // under ZeRO 3 the module holds the local shards
      for (const auto& held : module.parameters)
        own[held.placement.name].set_requires_grad(!frozen(held.placement.name, step));
      const Batch full = make_batch(tokens(6, step));
      const auto done =
          booster.execute_pipeline(replica_part(full, plugin->mesh().size("dp"), plugin->mesh().coordinate("dp")),
                                   boosted, {.broadcast_loss = true});
      run.losses.push_back(*done.loss);
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
    }
    run.last = weights();
    return run;
  });
}

// Trains the weights `first` with a plain LibTorch loop.
FrozenRun run_plain(const Config& config, const Frozen& frozen, const TensorDict& first) {
  models::DecoderImpl model(models::decoder_spec("gpt2", nlohmann::json::parse(config.model.config_json)));
  model.to(torch::kFloat64);
  const auto parameters = model.named_parameters();
  FrozenRun run{.first = first};
  {
    const torch::NoGradGuard no_grad;
    for (const auto& [name, values] : first) parameters[name].copy_(values);
  }
  std::vector<torch::Tensor> each_once;  // a tied parameter has two names
  for (const auto& [name, values] : first) each_once.push_back(parameters[name]);
  torch::optim::AdamW optimizer(each_once, torch::optim::AdamWOptions(config.optimizer.lr)
                                               .eps(config.optimizer.eps)
                                               .weight_decay(config.optimizer.weight_decay)
                                               .betas({config.optimizer.beta1, config.optimizer.beta2}));
  for (int step = 0; step < kFrozenSteps; ++step) {
    for (const auto& [name, values] : first) parameters[name].set_requires_grad(!frozen(name, step));
    const TensorDict batch = tokens(6, step);
    const Loss loss = nn::cross_entropy(model.forward(batch).at("logits"), batch.at("labels"));
    (loss.sum / loss.count).backward();
    run.losses.push_back((loss.sum / loss.count).item<double>());
    optimizer.step();
    optimizer.zero_grad();
  }
  for (const auto& [name, values] : first) run.last.set(name, parameters[name].detach());
  return run;
}

void expect_plain_numbers(const Frozen& frozen, bool tied, const std::vector<Parallelism>& layouts) {
  for (const auto& how : layouts) {
    const Config config = frozen_config(how, tied);
    const FrozenRun got = run_frozen(config, frozen);
    ASSERT_GT(got.first.size(), 0u) << describe(how);
    const FrozenRun expected = run_plain(config, frozen, got.first);
    for (int step = 0; step < kFrozenSteps; ++step)
      EXPECT_NEAR(got.losses[step], expected.losses[step], 1e-9) << describe(how) << " step " << step;
    SCOPED_TRACE(describe(how));
    expect_close(expected.last, got.last, 1e-9);
    if (::testing::Test::HasFailure()) return;
  }
}

std::vector<Parallelism> frozen_layouts() {
  return {{},
          {.layout = {.pipeline = 2}},
          {.layout = {.pipeline = 2}, .schedule = "zb_h1"},
          {.layout = {.pipeline = 4}, .recompute = "full"},
          {.layout = {.data = 2}},
          {.layout = {.data = 2}, .zero = 1},
          {.layout = {.data = 3}, .zero = 2},
          {.layout = {.tensor = 2}},
          {.layout = {.pipeline = 2, .data = 2}, .schedule = "zb_h1", .zero = 2},
          {.layout = {.data = 3}, .zero = 3},
          {.layout = {.pipeline = 2, .data = 2}, .schedule = "zb_h1", .zero = 3},
          {.layout = {.pipeline = 2, .data = 2, .tensor = 2}, .zero = 1}};
}

TEST(FrozenParameters, HalvesOfTheModelEqualAPlainLoop) { expect_plain_numbers(by_halves, false, frozen_layouts()); }

TEST(FrozenParameters, ATieOverTwoStagesEqualsAPlainLoop) { expect_plain_numbers(the_tie, true, frozen_layouts()); }

TEST(FrozenParameters, MastersOfALowPrecisionStandStillToo) {
  for (const int zero : {0, 2}) {
    Config config = frozen_config({.layout = {.data = 2}, .zero = zero}, false);
    config.precision = "bfloat16";
    const FrozenRun run = run_frozen(config, [](const std::string& name, int step) {
      return begins_with(name, {"h.0"}) || (step > 0 && begins_with(name, {"h.1"}));
    });
    for (const auto& [name, values] : run.first)
      if (begins_with(name, {"h.0"})) EXPECT_TRUE(torch::equal(values, run.last.at(name))) << name;
    for (const char* name : {"h.1.mlp.up.weight", "h.2.mlp.up.weight"})
      EXPECT_FALSE(torch::equal(run.first.at(name), run.last.at(name))) << name;
  }
}

}  // namespace
}  // namespace gantry::testing
