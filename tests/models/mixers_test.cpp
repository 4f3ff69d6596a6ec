// Layers with mixers other than attention: layouts, packed documents, padding, and states of generation.
#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/models/decoder.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/mixers/short_convolution.h"
#include "gantry/models/described/model_flops.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/models/model_family.h"
#include "gantry/policies/decoder.h"
#include "gantry/tensors/libtorch.h"
#include "generation_case.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::string> mixer_cases() {
  std::vector<std::string> cases;
  for (const auto& folder : family_cases(GANTRY_SOURCE_DIR "/tests/golden/families"))
    if (is_causal_case(folder) && has_mixers(folder)) cases.push_back(folder);
  return cases;
}

std::string name_of_mixer_case(const ::testing::TestParamInfo<std::string>& info) {
  return std::filesystem::path(info.param).filename().string();
}

class Mixers : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, Mixers, ::testing::ValuesIn(mixer_cases()), name_of_mixer_case);

// The model of a case in float64 on this thread.
models::Decoder loaded(const std::string& folder) {
  const json keys = json::parse(read_file(folder + "/config.json"));
  const auto& family = models::families().at(keys["model_type"].get<std::string>());
  auto model = std::dynamic_pointer_cast<models::DecoderImpl>(family.build(keys));
  model->to(torch::kFloat64);
  load_hugging_face(folder, family, keys, full_parameters(*model), {});
  model->eval();
  return models::Decoder(model);
}

TEST_P(Mixers, EveryLayoutInFloat64EqualsOneRank) {
  const FamilyOutcome one = run_family(GetParam(), {}, false, "float64");
  for (const auto& [layout, sequence_parallel] : {std::pair(Layout{.tensor = 2}, true),
                                                  {Layout{.tensor = std::min(3, largest_tensor(GetParam()))}, false},
                                                  {Layout{.pipeline = 2, .tensor = 2}, false},
                                                  {Layout{.context = 2}, false}}) {
    const FamilyOutcome split = run_family(GetParam(), layout, sequence_parallel, "float64");
    if (split.trained) EXPECT_NEAR(one.loss, split.loss, 1e-10) << describe(layout);
    EXPECT_LE((one.outputs.at("logits") - split.outputs.at("logits")).abs().max().item<double>(), 1e-10)
        << describe(layout);
    if (!split.trained) continue;
    for (const auto& [name, gradient] : one.gradients)
      EXPECT_LE((gradient - split.gradients.at(name)).abs().max().item<double>(), 1e-10)
          << describe(layout) << " " << name;
  }
}

// Three documents in one row, each of which transformers has run alone.
TEST_P(Mixers, DocumentsOfAPackedRowAreApart) {
  const TensorDict packed = read_safetensors(GetParam() + "/packed.safetensors");
  models::Decoder model = loaded(GetParam());
  const torch::NoGradGuard no_grad;
  TensorDict batch;
  for (const char* name : {"input_ids", "document_ids"}) batch.set(name, packed.at(name).to(torch::kInt64));
  const torch::Tensor logits = model->forward(batch).at("logits");
  EXPECT_LE((logits - packed.at("logits")).abs().max().item<double>(), 5e-5);
}

// Padding on the left, with tokens that would change the states: the texts have the same logits without it.
TEST_P(Mixers, PaddingDoesNotEnterTheStates) {
  models::Decoder model = loaded(GetParam());
  const torch::NoGradGuard no_grad;
  const torch::Tensor ids = read_safetensors(GetParam() + "/inputs.safetensors").at("input_ids").to(torch::kInt64);
  const std::int64_t padding = 5, length = ids.size(1) - padding;
  const torch::Tensor text = ids.narrow(1, 0, length);
  const torch::Tensor alone = model->forward({{"input_ids", text}}).at("logits");
  torch::Tensor mask = torch::ones_like(ids);
  mask.narrow(1, 0, padding).zero_();
  const torch::Tensor positions = (mask.cumsum(1) - 1).clamp_min(0);
  const torch::Tensor padded = torch::cat({ids.narrow(1, length, padding), text}, 1);
  const torch::Tensor logits =
      model->forward({{"input_ids", padded}, {"attention_mask", mask}, {"position_ids", positions}}).at("logits");
  EXPECT_LE((logits.narrow(1, padding, length) - alone).abs().max().item<double>(), 1e-10);
}

std::vector<TokenIds> prompts_of(const std::string& folder, const std::vector<std::int64_t>& lengths) {
  const torch::Tensor ids = read_safetensors(folder + "/inputs.safetensors").at("input_ids").to(torch::kInt64);
  std::vector<TokenIds> prompts;
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    const torch::Tensor prompt = ids[static_cast<std::int64_t>(row)].narrow(0, 0, lengths[row]).contiguous();
    prompts.emplace_back(prompt.data_ptr<std::int64_t>(), prompt.data_ptr<std::int64_t>() + lengths[row]);
  }
  return prompts;
}

// Prompts of several lengths are padded on the left; beams exchange the states of their sequences.
TEST_P(Mixers, CachedGenerationEqualsFullForwards) {
  const std::vector<TokenIds> prompts = prompts_of(GetParam(), {2, 7, 1, 4});
  const auto jobs_with = [&](bool is_cached) {
    return std::vector<GenerationJob>{
        {.name = "greedy", .prompts = prompts, .options = {.max_new_tokens = 8, .use_cache = is_cached}},
        {.name = "beams",
         .prompts = prompts,
         .options = {.max_new_tokens = 6, .num_beams = 3, .use_cache = is_cached}}};
  };
  const auto full = generate_in(Layout{}, GetParam(), jobs_with(false));
  for (const Layout& layout : {Layout{}, Layout{.pipeline = 2, .tensor = 2}, Layout{.context = 2}}) {
    const auto cached = generate_in(layout, GetParam(), jobs_with(true));
    for (std::size_t job = 0; job < cached.size(); ++job)
      EXPECT_EQ(tokens_of(cached[job]), tokens_of(full[job])) << describe(layout) << " job " << job;
  }
}

// Each rank has the states of some heads: after prompts of which each rank has tokens, and after shorter ones, which
// all ranks compute.
TEST(MixerContext, RanksShareTheStatesOfGeneration) {
  for (const char* name : {"nemotron_h", "qwen3_next"}) {
    const std::string folder = golden_model(std::string("families/") + name);
    std::vector<GenerationJob> jobs;
    for (const auto& lengths : {std::vector<std::int64_t>{5, 2, 7}, {1, 2}})
      jobs.push_back({.name = "prompts", .prompts = prompts_of(folder, lengths), .options = {.max_new_tokens = 5}});
    const auto one = generate_in(Layout{}, folder, jobs);
    for (const Layout& layout : {Layout{.context = 3}, Layout{.pipeline = 2, .tensor = 2, .context = 2}}) {
      if (layout.context > largest_context(folder, layout.tensor)) continue;
      const auto shared = generate_in(layout, folder, jobs);
      for (std::size_t job = 0; job < jobs.size(); ++job)
        EXPECT_EQ(tokens_of(shared[job]), tokens_of(one[job])) << name << " " << describe(layout) << " job " << job;
    }
  }
}

// The caches after the prompts: the states of recurrences, and the last inputs of convolutions.
TEST_P(Mixers, StatesAreThoseOfTransformers) {
  if (!std::filesystem::exists(GetParam() + "/states.safetensors")) return;
  const TensorDict expected = read_safetensors(GetParam() + "/states.safetensors");
  models::Decoder model = loaded(GetParam());
  const torch::NoGradGuard no_grad;
  const torch::Tensor ids = read_safetensors(GetParam() + "/inputs.safetensors").at("input_ids").to(torch::kInt64);
  const TensorDict batch = {{"input_ids", ids.narrow(0, 0, 2).narrow(1, 0, 6)}};
  nn::LayerCaches caches;
  const auto layers = static_cast<int>(model->spec.layers.size());
  const auto stage = std::make_shared<const StageContext>(
      0, 1, LayerRange{0, layers},
      StageContext::Settings{.batch = batch, .tokens = nn::TokenContext{.caches = &caches}});
  model->stage_forward(*stage, batch);
  const std::map<std::string, std::string> ours = {
      {"conv_states", "past_inputs"}, {"recurrent_states", "recurrence"}, {"linear", "recurrence"}};
  int compared = 0;
  for (const auto& [name, tensor] : expected) {
    const auto known = ours.find(name.substr(name.find('.') + 1));
    if (known == ours.end()) continue;
    torch::Tensor state = caches.state_of(std::stoi(name)).get(known->second);
    ASSERT_TRUE(state.defined()) << name;
    const torch::Tensor kept = tensor.narrow(-1, tensor.size(-1) - state.size(-1), state.size(-1));
    EXPECT_LE((state - kept).abs().max().item<double>(), 5e-5) << name;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

// Ranks of cp share the heads or channels of a rank of tp.
TEST(MixerContext, MoreRanksThanHeadsAreRefusedByName) {
  const json keys = {
      {"hidden_size", 48}, {"num_heads", 6}, {"head_dim", 16}, {"n_groups", 1}, {"num_hidden_layers", 2}};
  const models::Decoder model(models::decoder_spec("mamba2", keys));
  const ModelSplit split = DecoderPolicy("mamba2").split(*model);
  ASSERT_TRUE(split.context.has_value());
  EXPECT_EQ(split.context->heads, (AttentionHeads{0, 0}));
  EXPECT_EQ(split.context->objection(3, 2), "");
  const std::string reason = split.context->objection(4, 2);
  EXPECT_EQ(reason,
            "layer 0 of the mamba2 model has Mamba-2 mixers with 3 heads or channels on a rank of parallel.tensor 2");
  const std::string error = thrown_by([&] { models::require_context(model->spec, 4, 2); });
  EXPECT_THAT(error, HasSubstr("parallel.context: the value is 4, but " + reason));
  EXPECT_THAT(error, HasSubstr("set a smaller parallel.context or parallel.tensor"));
  EXPECT_EQ(thrown_by([&] { models::require_context(model->spec, 3, 2); }), "no error");
}

// Published files have them below "mtp".
TEST(MixerFiles, LayersThatPredictFurtherTokensAreIgnored) {
  for (const char* type : {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}) {
    const auto& family = models::families().at(type);
    for (const char* name : {"mtp.fc.weight", "mtp.layers.0.input_layernorm.weight"})
      EXPECT_TRUE(family.is_ignored_tensor(json::object(), name)) << type << " " << name;
    EXPECT_FALSE(family.is_ignored_tensor(json::object(), "model.norm.weight")) << type;
  }
}

// Files of MiniMax have the decays, which follow from the sizes.
TEST(MixerFiles, DecaysOfLightningAttentionAreNoParameters) {
  const auto& family = models::families().at("minimax");
  for (const char* name : {"slope_rate", "query_decay", "key_decay", "diagonal_decay"})
    EXPECT_EQ(family.normalise_name(json::object(), std::string("model.layers.0.self_attn.") + name), "") << name;
}

TEST(MixerKeys, UnsupportedValuesAreRefusedByName) {
  const auto refused = [](const char* family, const json& keys) {
    return thrown_by([&] { models::decoder_spec(family, keys); });
  };
  EXPECT_THAT(refused("qwen3_next", {{"linear_num_value_heads", 24}}),
              HasSubstr("a multiple of linear_num_key_heads 16"));
  EXPECT_THAT(refused("qwen3_5_text", {{"attn_output_gate", false}}), HasSubstr("attn_output_gate"));
  EXPECT_THAT(refused("qwen3_5_moe_text", {{"norm_topk_prob", false}}), HasSubstr("norm_topk_prob"));
  EXPECT_THAT(refused("minimax", {{"rotary_dim", 64}}), HasSubstr("rotary_dim"));
  EXPECT_THAT(refused("minimax", {{"attn_type_list", {0, 1}}}), HasSubstr("0 or 1 for each layer"));
  EXPECT_THAT(refused("kimi_linear", {{"mla_use_nope", false}}), HasSubstr("mla_use_nope"));
  EXPECT_THAT(refused("kimi_linear", {{"linear_attn_config", {{"full_attn_layers", {0}}, {"kda_layers", {1}}}}}),
              HasSubstr("a list of layers from 1 to 27"));
}

// Files that Python's json module has written, and those of transformers 5.
TEST(MixerKeys, LimitsOfStepsMayBeInfinite) {
  const auto accepted = [](const std::string& limits) {
    const ScratchFolder scratch;
    scratch.write("config.json", R"({"model_type": "mamba2", "time_step_limit": )" + limits + "}");
    return thrown_by([&] { models::decoder_spec("mamba2", read_model_config(scratch.path())); });
  };
  EXPECT_EQ(accepted("[0.0, Infinity]"), "no error");
  EXPECT_EQ(accepted(R"([0.001, {"__float__": "Infinity"}])"), "no error");
  EXPECT_THAT(accepted("[0.1, 0.01]"), HasSubstr("the smaller limit first"));
  EXPECT_THAT(accepted("[0.1]"), HasSubstr("time_step_limit"));
}

TEST(MixerKeys, SizesThatDoNotFitAreRefused) {
  const auto refusal = [](const char* family, const json& keys) {
    return thrown_by([&] { models::decoder_spec(family, keys); });
  };
  EXPECT_THAT(refusal("mamba2", {{"num_heads", 64}}), HasSubstr("model.config.head_dim"));
  EXPECT_THAT(refusal("mamba2", {{"n_groups", 3}}), HasSubstr("a divisor of num_heads 128"));
  EXPECT_THAT(refusal("mamba2", {{"hidden_act", "gelu"}}), HasSubstr("hidden_act"));
  EXPECT_THAT(refusal("granitemoehybrid", {{"mamba_d_head", 32}}), HasSubstr("mamba_n_heads"));
  EXPECT_THAT(refusal("granitemoehybrid", {{"layer_types", {"mamba"}}}), HasSubstr("a list of 32 words"));
  EXPECT_THAT(refusal("falcon_h1", {{"ssm_multipliers", {1, 2}}}), HasSubstr("a list of 5 numbers"));
  EXPECT_THAT(refusal("jamba", {{"attn_layer_offset", 8}}), HasSubstr("a number below attn_layer_period 8"));
  EXPECT_THAT(refusal("lfm2", {{"num_hidden_layers", 4}, {"full_attn_idxs", {4}}}), HasSubstr("layers from 0 to 3"));
}

TEST(MixerSpec, IsAValue) {
  using models::ShortConvolution;
  const auto of = [](std::int64_t kernel) {
    return models::MixerSpec(
        std::make_shared<const ShortConvolution>(models::ShortConvolutionSizes{.channels = 8, .kernel = kernel}));
  };
  EXPECT_EQ(of(3), of(3));
  EXPECT_FALSE(of(3) == of(4));
  EXPECT_FALSE(of(3) == models::MixerSpec());
  EXPECT_EQ(models::MixerSpec(), models::MixerSpec());
}

// in_proj, out_proj and three taps of each channel, next to a gated MLP.
TEST(MixerSpec, WorkOfShortConvolutions) {
  const json keys = {{"hidden_size", 32},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", 2},
                     {"num_hidden_layers", 1},
                     {"layer_types", {"conv"}},
                     {"intermediate_size", 64},
                     {"block_auto_adjust_ff_dim", false}};
  const auto spec = models::decoder_spec("lfm2", keys);
  EXPECT_DOUBLE_EQ(models::layer_weights(spec.layers.at(0), 32), 4 * 32 * 32 + 3 * 32 + 3 * 32 * 64);
  EXPECT_DOUBLE_EQ(models::forward_flops(spec, 100).attention, 0);
}

}  // namespace
}  // namespace gantry::testing
