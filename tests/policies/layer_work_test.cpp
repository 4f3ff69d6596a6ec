// The work per layer for `schedule.layers: balanced`: equal
// by a model and by its keys, and stated by a custom policy.
#include "gantry/schedule/layer_work.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/config/schedule_choice.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/models/model_family.h"
#include "gantry/plugins/model_setup.h"
#include "gantry/policies/decoder.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

std::shared_ptr<torch::nn::Module> build_family(const std::string& family, const nlohmann::json& keys) {
  const DeferredInit deferred;
  return models::families().at(family).build(keys);
}

// `gantry config` uses the keys, and so shows the same as the library.
TEST(LayerWorkOfPolicies, IsWhatTheKeysSay) {
  const std::pair<std::string, nlohmann::json> cases[] = {
      {"gpt2", {{"n_layer", 2}}},
      {"gpt2", {{"n_layer", 3}, {"n_embd", 24}, {"n_head", 4}, {"n_inner", 40}, {"vocab_size", 77}}},
      {"llama", {{"num_hidden_layers", 2}}},
      {"llama",
       {{"num_hidden_layers", 2},
        {"hidden_size", 32},
        {"num_attention_heads", 4},
        {"num_key_value_heads", 2},
        {"intermediate_size", 48},
        {"vocab_size", 99}}},
      {"gpt_oss", {{"num_hidden_layers", 2}, {"hidden_size", 32}, {"intermediate_size", 24}, {"num_local_experts", 4}}},
      {"bert", {{"num_hidden_layers", 2}}},
      {"bert", {{"num_hidden_layers", 2}, {"architectures", {"BertForQuestionAnswering"}}}},
      {"bert", {{"num_hidden_layers", 2}, {"architectures", {"BertForSequenceClassification"}}}},
      {"bert", {{"num_hidden_layers", 2}, {"architectures", {"BertForTokenClassification"}}, {"num_labels", 5}}},
      {"bert", {{"num_hidden_layers", 2}, {"architectures", {"BertModel"}}}},
      {"roberta", {{"num_hidden_layers", 2}}},
      {"roberta", {{"num_hidden_layers", 2}, {"architectures", {"RobertaForQuestionAnswering"}}}},
      {"xlm-roberta", {{"num_hidden_layers", 2}}},
      {"distilbert", {{"n_layers", 2}, {"hidden_dim", 100}}},
      {"distilbert", {{"n_layers", 2}, {"architectures", {"DistilBertForQuestionAnswering"}}}},
      {"nomic_bert", {{"n_layer", 2}, {"n_inner", 100}, {"head_dim", 16}}},
      {"electra", {{"num_hidden_layers", 2}, {"hidden_size", 64}, {"embedding_size", 32}}},
      {"modernbert", {{"num_hidden_layers", 2}, {"intermediate_size", 100}}},
      {"modernbert", {{"num_hidden_layers", 2}, {"architectures", {"ModernBertForTokenClassification"}}}},
      {"modernbert", {{"num_hidden_layers", 2}, {"architectures", {"ModernBertForSequenceClassification"}}}},
      {"bart", {{"encoder_layers", 2}, {"decoder_layers", 1}, {"d_model", 32}, {"vocab_size", 99}}},
      {"pegasus", {{"encoder_layers", 1}, {"decoder_layers", 2}, {"d_model", 32}, {"vocab_size", 99}}},
      {"mt5", {{"num_layers", 2}, {"num_decoder_layers", 1}, {"vocab_size", 99}}},
      {"umt5", {{"num_layers", 1}, {"num_decoder_layers", 1}, {"vocab_size", 99}}},
      {"vit", {{"num_hidden_layers", 2}, {"hidden_size", 48}}},
      {"t5", {{"num_layers", 2}, {"num_decoder_layers", 3}, {"d_kv", 10}, {"vocab_size", 99}}},
      {"t5", {{"num_layers", 1}, {"num_decoder_layers", 1}, {"feed_forward_proj", "gated-gelu"}}},
      {"whisper", {{"encoder_layers", 2}, {"decoder_layers", 1}, {"d_model", 24}, {"num_hidden_layers", 2}}},
      {"opt", {{"num_hidden_layers", 2}, {"word_embed_proj_dim", 512}, {"do_layer_norm_before", false}}}};
  for (const auto& [family, keys] : cases) {
    SCOPED_TRACE(family + " " + keys.dump());
    const auto model = build_family(family, keys);
    const LayerWork by_model = work_of(policy_for(*model)->split(*model), *model);
    const LayerWork by_keys = models::layer_work_in(keys, static_cast<int>(by_model.layers.size()), family);
    EXPECT_EQ(layer_count(*policy_for(*model), *model), layers_in(keys));
    EXPECT_EQ(by_keys.layers, by_model.layers);
    EXPECT_EQ(by_keys.first, by_model.first);
    EXPECT_EQ(by_keys.last, by_model.last);
  }
}

// A GPT-2 whose layer 1 has ten times the work of any other layer, and whose head has no work.
class HeavyLayerPolicy : public PolicyFor<models::DecoderImpl> {
 public:
  std::string name() const override { return "HeavyLayerPolicy"; }
  ModelSplit split(const models::DecoderImpl& model) const override {
    ModelSplit split = DecoderPolicy().split(model);
    split.work = LayerWork{.layers = work};
    return split;
  }
  TensorDict forward(models::DecoderImpl& model, const StageContext& stage, TensorDict input) const override {
    return DecoderPolicy().forward(model, stage, std::move(input));
  }
  std::vector<double> work = {1, 10, 1, 1, 1, 1};
};

TEST(LayerWorkOfPolicies, APolicyStatesAHeavyLayer) {
  using Counts = std::vector<int>;
  HeavyLayerPolicy policy;
  const auto model = build_family("gpt2", {{"n_layer", 6}, {"n_embd", 24}, {"n_head", 4}});
  ScheduleConfig balanced;
  balanced.layers.emplace<std::string>("balanced");
  auto chosen = [&](const PipelineStageManager& stages) { return chosen_layers(balanced, policy, *model, stages); };
  EXPECT_EQ(chosen({0, 2}), (Counts{2, 4}));
  EXPECT_EQ(chosen({0, 3}), (Counts{1, 1, 4}));
  // Rank 0 has stages 0 and 2 of a loop, or stages 0 and 3 of a V.
  EXPECT_EQ(chosen({0, 2, 2}), (Counts{1, 1, 3, 1}));
  EXPECT_EQ(chosen({0, 2, 2, StagePlacement::kV}), (Counts{1, 1, 1, 3}));
  // Without stated work the layers are equal, and the head has the most work.
  EXPECT_EQ(chosen_layers(balanced, DecoderPolicy(), *model, {0, 2}), (Counts{6, 0}));

  policy.work.pop_back();
  try {
    chosen({0, 2});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "HeavyLayerPolicy::split: it states the work of 5 layers, but 'h' has 6; expected the work of "
                 "every layer");
  }
}

}  // namespace
}  // namespace gantry::testing
