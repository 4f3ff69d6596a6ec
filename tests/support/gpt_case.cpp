#include "gpt_case.h"

#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/booster/recipe.h"
#include "gantry/comm/launch.h"
#include "gantry/plugins/gather.h"

namespace gantry::testing {
namespace {

Config config_of(const GptCase& what, const Parallelism& how) {
  Config config = layout_config(how.layout);
  config.model.policy = "gpt2";
  config.model.config_json =
      nlohmann::json{{"n_layer", what.layers},        {"n_head", what.heads},       {"n_embd", what.width},
                     {"vocab_size", what.vocabulary}, {"n_positions", what.tokens}, {"resid_pdrop", what.dropout},
                     {"embd_pdrop", what.dropout},    {"attn_pdrop", what.dropout}, {"tie_word_embeddings", what.tied}}
          .dump();
  config.parallel.sequence_parallel = how.sequence_parallel;
  config.schedule.name = how.schedule;
  config.schedule.microbatches = how.microbatches;
  config.precision = what.precision;
  config.optimizer.lr = 1e-2;
  config.optimizer.clip_grad_norm = what.clip;
  config.train.seed = 7;
  return config;
}

// The whole batch of a step, the same in every layout: a linear congruence, so that no generator's state is involved.
TensorDict whole_batch(const GptCase& what, std::size_t step) {
  const std::int64_t samples = what.batches[step];
  torch::Tensor ids = torch::empty({samples, what.tokens}, torch::kInt64), labels = torch::empty_like(ids);
  std::uint64_t state = 1000 + step;
  auto draw = [&](std::uint64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % bound;
  };
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    ids.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(draw(what.vocabulary));
    labels.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(draw(what.vocabulary));
    // The first samples lose more labels, so that replicas and microbatches count differently.
    if (static_cast<double>(draw(1000)) < 1000 * what.ignored * (i < ids.numel() / 2 ? 2 : 0.5))
      labels.data_ptr<std::int64_t>()[i] = -100;
  }
  return {{"input_ids", ids}, {"labels", labels}};
}

Batch replica_batch(const GptCase& what, std::size_t step, const ProcessGroupMesh& mesh) {
  Batch batch = make_batch(whole_batch(what, step));
  const std::int64_t samples = batch.samples;
  const auto pieces = split_evenly(samples, mesh.size("dp"));
  const auto replica = static_cast<std::size_t>(mesh.coordinate("dp"));
  const auto [begin, end] = replica < pieces.size() ? pieces[replica] : std::pair(samples, samples);
  batch = slice(batch, begin, end);
  batch.global_samples = samples;
  return batch;
}

bool is_key_bias(const std::string& name) { return name.ends_with("attn.qkv.bias"); }

double largest(const torch::Tensor& tensor) { return tensor.numel() ? tensor.abs().max().item<double>() : 0; }

double largest_of(const TensorDict& tensors) {
  double all = 0;
  for (const auto& [name, tensor] : tensors) all = std::max(all, largest(tensor));
  return all;
}

// The worst difference of two sets of tensors, relative as DESIGN section 7 says.
void expect_tensors(const TensorDict& expected, const TensorDict& actual, double floor, double tolerance, bool weights,
                    const std::string& label) {
  ASSERT_EQ(expected.size(), actual.size()) << label;
  for (const auto& [name, tensor] : expected) {
    torch::Tensor a = tensor, b = actual.at(name);
    if (weights && is_key_bias(name)) {  // the middle third is the key's
      const auto third = a.size(0) / 3;
      a = torch::cat({a.narrow(0, 0, third), a.narrow(0, 2 * third, third)});
      b = torch::cat({b.narrow(0, 0, third), b.narrow(0, 2 * third, third)});
    }
    const double difference = largest(a - b) / std::max({largest(a), floor, 1e-300});
    EXPECT_LE(difference, tolerance) << label << (weights ? " weight " : " gradient ") << name;
    if (!(difference <= tolerance)) return;
  }
}

}  // namespace

std::string describe(const Parallelism& how) {
  return how.schedule + " tp " + std::to_string(how.layout.tensor) + " pp " + std::to_string(how.layout.pipeline) +
         " dp " + std::to_string(how.layout.data) + " m " + std::to_string(how.microbatches) +
         (how.sequence_parallel ? " sequence parallel" : "");
}

CaseResult run_case(const GptCase& what, const Parallelism& how, const std::string& backend) {
  Config config = config_of(what, how);
  config.comm.backend = backend;
  config.comm.threads_per_rank = 1;
  CaseResult result;
  const int code = launch(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    const auto& mesh = plugin->mesh();
    auto model = build_model(config);
    auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy());
    boosted.model->train();
    CaseResult mine;
    auto& gradients = boosted.optimizer->gradients();
    for (std::size_t step = 0; step < what.batches.size(); ++step) {
      const auto done = booster.execute_pipeline(replica_batch(what, step, mesh), boosted, {.broadcast_loss = true});
      mine.losses.push_back(*done.loss);
      mine.norms.push_back(boosted.optimizer->grad_norm());
      if (step + 1 == what.batches.size())
        mine.gradients = gather_tensors(boosted.model->stage_module(), plugin->stages(), mesh,
                                        [&](std::size_t i) { return gradients.gradient(i); });
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
    }
    mine.weights = gather_tensors(boosted.model->stage_module(), plugin->stages(), mesh,
                                  [&](std::size_t i) { return boosted.model->stage_module().parameters[i].tensor; });
    if (std::string(world.backend().name()) != "local" || world.is_main()) result = std::move(mine);
  });
  EXPECT_EQ(code, 0) << describe(how);
  return result;
}

void expect_equal(const CaseResult& expected, const CaseResult& actual, double tolerance, const std::string& label) {
  ASSERT_EQ(expected.losses.size(), actual.losses.size()) << label;
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i], expected.losses[i], tolerance * std::abs(expected.losses[i]))
        << label << " loss of step " << i + 1;
    EXPECT_NEAR(actual.norms[i], expected.norms[i], tolerance * std::abs(expected.norms[i]))
        << label << " norm of step " << i + 1;
  }
  const double floor = largest_of(expected.gradients) / 1000;
  expect_tensors(expected.gradients, actual.gradients, floor, tolerance, false, label);
  expect_tensors(expected.weights, actual.weights, floor, tolerance, true, label);
}

void expect_identical(const CaseResult& expected, const CaseResult& actual, const std::string& label) {
  EXPECT_EQ(expected.losses, actual.losses) << label;
  for (const auto& [name, tensor] : expected.gradients)
    EXPECT_TRUE(torch::equal(tensor, actual.gradients.at(name))) << label << " gradient " << name;
  for (const auto& [name, tensor] : expected.weights)
    EXPECT_TRUE(torch::equal(tensor, actual.weights.at(name))) << label << " weight " << name;
}

}  // namespace gantry::testing
