// Encoders and encoder-decoders in custom training loops that call the model's own forward. After
// initialize() or parallelize_module() they run tensor-parallel and must match one device.
#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "encoder_keys.h"
#include "gantry/booster/initialize.h"
#include "gantry/core/error.h"
#include "gantry/models/bert.h"
#include "gantry/models/model_family.h"
#include "gantry/models/t5.h"
#include "gantry/models/vit.h"
#include "gantry/models/whisper.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using nlohmann::json;

struct OwnEncoder {
  const char* family;
  json keys;
  TensorDict batch;
};

// Numbers of heads, widths and vocabularies that are not divisible by three ranks.
std::vector<OwnEncoder> own_encoders() {
  const torch::Tensor ids = torch::arange(2 * 7).view({2, 7}) * 5 % 23;
  const torch::Tensor waves = torch::sin(torch::arange(2 * 3 * 36, torch::kFloat64));
  torch::Tensor mask = torch::ones({2, 7}, torch::kInt64);
  mask[1].narrow(0, 5, 2).zero_();
  const TensorDict text{{"input_ids", ids}, {"attention_mask", mask}};
  json bert = {{"vocab_size", 23},           {"hidden_size", 12},
               {"num_attention_heads", 4},   {"num_hidden_layers", 2},
               {"intermediate_size", 11},    {"max_position_embeddings", 12},
               {"hidden_dropout_prob", 0.0}, {"attention_probs_dropout_prob", 0.0}};
  json classifier = bert;
  classifier["architectures"] = {"BertForTokenClassification"};
  bert["architectures"] = {"BertForMaskedLM"};
  json vit = small_vit_keys(), t5 = small_t5_keys(/*decoder_layers=*/2);
  vit.update({{"num_labels", 5}, {"hidden_dropout_prob", 0.0}, {"attention_probs_dropout_prob", 0.0}});
  t5["dropout_rate"] = 0.0;
  TensorDict pair = text, sound{{"input_features", waves.view({2, 6, 18})}};
  for (TensorDict* batch : {&pair, &sound}) batch->set("decoder_input_ids", ids.narrow(1, 1, 4).contiguous());
  return {{"bert", bert, text},
          {"bert", classifier, text},
          {"vit", vit, {{"pixel_values", waves.view({2, 3, 6, 6})}}},
          {"t5", t5, pair},
          {"whisper", small_whisper_keys(), sound}};
}

std::shared_ptr<torch::nn::Module> built_encoder(const OwnEncoder& what) {
  const DeferredInit deferred;
  auto model = models::families().at(what.family).build(what.keys);
  set_dtype(*model, torch::kFloat64);
  return model;
}

torch::Tensor own_logits(torch::nn::Module& model, const TensorDict& batch) {
  if (auto* bert = dynamic_cast<models::BertImpl*>(&model)) return bert->forward(batch).at("logits");
  if (auto* vit = dynamic_cast<models::VitImpl*>(&model)) return vit->forward(batch).at("logits");
  if (auto* t5 = dynamic_cast<models::T5Impl*>(&model)) return t5->forward(batch).at("logits");
  return dynamic_cast<models::WhisperImpl&>(model).forward(batch).at("logits");
}

// The losses of three steps in a plain training loop.
std::vector<double> train_encoder(torch::nn::Module& model, const TensorDict& batch) {
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const torch::Tensor logits = own_logits(model, batch);
    const torch::Tensor weights = torch::cos(torch::arange(logits.numel(), torch::kFloat64)).view_as(logits);
    const torch::Tensor loss = (logits.log_softmax(-1) * weights).mean();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

std::vector<double> train_alone(const OwnEncoder& what) {
  const auto model = built_encoder(what);
  materialize(*model, 1);
  const auto losses = train_encoder(*model, what.batch);
  EXPECT_GT(std::abs(losses[0] - losses[2]), 1e-6) << what.family;
  return losses;
}

void expect_losses(const std::vector<double>& expected, const std::vector<double>& actual, const std::string& label) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t step = 0; step < expected.size(); ++step) EXPECT_NEAR(actual[step], expected[step], 1e-10) << label;
}

TEST(InitializeEncoders, TrainAsOnOneDevice) {
  const ScratchFolder scratch;
  for (const OwnEncoder& what : own_encoders()) {
    const auto expected = train_alone(what);
    for (const int ranks : {2, 3})
      for (const bool by_sequence : {false, true}) {
        const std::string path = scratch.write(
            "gantry.yaml", fmt::format("parallel: {{tensor: {}, sequence_parallel: {}}}\n", ranks, by_sequence));
        run_ranks(ranks, [&](World&, ProcessGroupMesh&) {
          const auto model = built_encoder(what);
          const auto made = initialize(*model, path);
          expect_losses(expected, train_encoder(*model, what.batch),
                        fmt::format("{} tp {} {}", what.family, ranks, by_sequence));
        });
      }
  }
}

TEST(InitializeEncoders, RefuseAPipelineByName) {
  const ScratchFolder scratch;
  const std::string path = scratch.write("gantry.yaml", "parallel: {pipeline: 2}\n");
  for (const OwnEncoder& what : own_encoders())
    run_ranks(Layout{.pipeline = 2}, [&](World&, ProcessGroupMesh&) {
      try {
        initialize(*built_encoder(what), path);
        ADD_FAILURE() << what.family;
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("parallel.pipeline is 2; expected 1 for initialize; use"));
      }
    });
}

// The policy's plan without sequence shards and with full logits, like a plan that is written by hand.
ShardPlan plan_of(const torch::nn::Module& model) {
  ShardPlan plan;
  const auto policy = policy_for(model);
  ModelSplit split = policy->split(model);
  for (ShardRule& rule : split.shards) {
    if (std::holds_alternative<SequenceParallel>(rule.style) || std::holds_alternative<PrepareInput>(rule.style) ||
        std::holds_alternative<FullSequence>(rule.style))
      continue;
    if (auto* column = std::get_if<Column>(&rule.style))
      column->gather_output = rule.pattern == "cls.decoder" || rule.pattern == "lm_head" || rule.pattern == "proj_out";
    plan.push_back(rule);
  }
  return plan;
}

TEST(ParallelizeEncoders, TrainAsOnOneDevice) {
  for (const OwnEncoder& what : own_encoders()) {
    const auto expected = train_alone(what);
    for (const int ranks : {2, 3})
      run_ranks(ranks, [&](World&, ProcessGroupMesh& mesh) {
        const auto model = built_encoder(what);
        const auto placements = parallelize_module(*model, mesh["tp"], plan_of(*model));
        materialize(*model, 1);
        EXPECT_GE(std::count_if(placements.begin(), placements.end(),
                                [](const Placement& one) { return one.along("tp").sharded(); }),
                  10);
        expect_losses(expected, train_encoder(*model, what.batch), fmt::format("{} tp {}", what.family, ranks));
      });
  }
}

}  // namespace
}  // namespace gantry::testing
