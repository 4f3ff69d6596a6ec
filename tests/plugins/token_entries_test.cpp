// Entries of a batch in the forms of other programs: in every layout each of them trains as intended or is an error.
#include <gtest/gtest.h>
#include <tuple>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "ranks_outcome.h"
#include "tiny_rig.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kTokens = 8, kSamples = 4;

Config tiny_llama(const Layout& layout) {
  Config config = layout_config(layout);
  config.model.policy = "llama";
  config.model.config_json =
      R"({"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "hidden_size": 8,
          "intermediate_size": 12, "vocab_size": 29, "max_position_embeddings": 8})";
  config.precision = "float64";
  config.schedule.microbatches = 2;
  return config;
}

const std::vector<Layout> kLayouts = {{}, {.pipeline = 2}, {.tensor = 2}, {.data = 2}, {.context = 2}};

// Two documents of 5 and 3 tokens in each sample.
TensorDict packed_batch() {
  const torch::Tensor all = (torch::arange(kSamples * (kTokens + 1)).view({kSamples, -1}) * 7) % 29;
  return {{"input_ids", all.narrow(1, 0, kTokens).contiguous()}, {"labels", all.narrow(1, 1, kTokens).contiguous()}};
}

torch::Tensor of_every_sample(const std::vector<std::int64_t>& tokens) {
  return torch::tensor(tokens).repeat({kSamples, 1});
}

double loss_with(const Layout& layout, const TensorDict& added) {
  const Config config = tiny_llama(layout);
  return on_layout<double>(config, [&](World& world) {
    Rig rig(world, config);
    TensorDict tensors = packed_batch();
    for (const auto& [name, tensor] : added) tensors.set(name, tensor);
    const StepResult result = rig.booster.execute_pipeline(rig.batch(tensors), rig.boosted, {.broadcast_loss = true});
    return *result.loss;
  });
}

RanksOutcome outcome_with(const Layout& layout, const TensorDict& added) {
  const Config config = tiny_llama(layout);
  return outcome_of(config, [&](World& world) {
    Rig rig(world, config);
    TensorDict tensors = packed_batch();
    for (const auto& [name, tensor] : added) tensors.set(name, tensor);
    rig.booster.execute_pipeline(rig.batch(tensors), rig.boosted);
  });
}

TEST(TokenEntries, OfPackedDocumentsTrainInEveryLayout) {
  const TensorDict packed = {{"document_ids", of_every_sample({0, 0, 0, 0, 0, 1, 1, 1})},
                             {"position_ids", of_every_sample({0, 1, 2, 3, 4, 0, 1, 2})},
                             {"attention_mask", torch::ones({kSamples, kTokens}, torch::kBool)}};
  const double expected = loss_with({}, packed);
  for (const Layout& layout : kLayouts) EXPECT_NEAR(loss_with(layout, packed), expected, 1e-12);
}

TEST(TokenEntries, PositionsOfPaddingAreNotDocuments) {
  const TensorDict padded = {{"position_ids", of_every_sample({1, 1, 0, 1, 2, 3, 4, 1})},
                             {"attention_mask", of_every_sample({0, 0, 1, 1, 1, 1, 1, 0})}};
  const double expected = loss_with({}, padded);
  for (const Layout& layout : kLayouts) EXPECT_NEAR(loss_with(layout, padded), expected, 1e-12);
}

TEST(TokenEntries, OfOtherProgramsAreRefusedByName) {
  const torch::Tensor numbers = of_every_sample({1, 1, 1, 1, 1, 2, 2, 2});
  const torch::Tensor additive = torch::where(numbers == 1, 0.0, -1e9);
  const std::vector<std::tuple<std::string, torch::Tensor, std::string>> cases = {
      {"position_ids", of_every_sample({0, 1, 2, 3, 4, 0, 1, 2}), "position_ids: the positions restart at token 5"},
      {"attention_mask", numbers, "attention_mask: the mask has the value 2"},
      {"attention_mask", additive, "attention_mask: the mask has the value -1"},
      {"attention_mask", torch::ones({kSamples, kTokens + 1}, torch::kInt64), "attention_mask: the entry is int64 ["},
      {"attention_mask", torch::ones({kSamples, 1, 1, kTokens}, torch::kInt64), "attention_mask: the entry is int64 ["},
      {"document_ids", torch::ones({kSamples, kTokens - 1}, torch::kInt64), "document_ids: the entry is int64 ["},
      {"segment_ids", numbers, "segment_ids: the model does not read this entry"},
      {"seq_idx", numbers - 1, "seq_idx: the model does not read this entry"},
      {"loss_mask", numbers - 1, "loss_mask: the loss does not read this entry"}};
  for (const Layout& layout : kLayouts)
    for (const auto& [name, tensor, error] : cases) {
      SCOPED_TRACE(name);
      expect_refused(outcome_with(layout, {{name, tensor}}), 4, error);
    }
}

}  // namespace
}  // namespace gantry::testing
