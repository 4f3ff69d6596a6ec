// Encoders and encoder-decoders: every layout trains like one rank in float64, with dropout and padding, and
// T5 with any split over the pipeline.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "encoder_keys.h"
#include "family_case.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/models/model_family.h"
#include "gantry/models/relative_bias.h"
#include "gantry/models/text_encoder.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "generation_case.h"
#include "model_case.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The corners of a grid: no axis, each axis alone, and all together, with uneven heads, widths and sequences.
// Each call returns every fourth layout, in turn; under GANTRY_LONG=1 it returns all.
std::vector<Parallelism> encoder_layouts() {
  const std::vector<Parallelism> corners = {
      {.layout = {.tensor = 2}},
      {.layout = {.tensor = 3}, .recompute = "selective"},
      {.layout = {.tensor = 3}, .microbatches = 2, .sequence_parallel = true},
      {.layout = {.pipeline = 3}, .schedule = "zb_h1", .microbatches = 3},
      {.layout = {.data = 2}, .microbatches = 2, .zero = 1},
      {.layout = {.pipeline = 2, .tensor = 2}, .microbatches = 2, .sequence_parallel = true, .recompute = "full"},
      {.layout = {.pipeline = 2, .data = 2, .tensor = 2}, .microbatches = 3, .recompute = "parts"},
      {.layout = {.pipeline = 2}, .schedule = "interleaved_1f1b", .microbatches = 2, .chunks = 2}};
  return turn_of(next_turn("corners"), 4, corners);
}

TEST(EncoderGrid, Roberta) {
  expect_layouts_equal({.family = "xlm-roberta", .layers = 4, .dropout = 0.1, .batches = {6, 5}, .ignored = 0},
                       encoder_layouts());
  for (const char* head :
       {"ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"})
    expect_layouts_equal(
        {.family = "roberta", .layers = 4, .dropout = 0.1, .batches = {6, 5}, .ignored = 0, .head = head},
        encoder_layouts());
}

TEST(EncoderGrid, BertForTokenClassification) {
  expect_layouts_equal(
      {.family = "bert", .layers = 4, .dropout = 0.1, .batches = {6, 5}, .head = "ForTokenClassification"},
      encoder_layouts());
}

TEST(EncoderGrid, ModernBert) {
  for (const char* head :
       {"ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"})
    for (const bool is_mean : {false, true}) {
      const bool pools = std::string(head) == "ForSequenceClassification";
      if (is_mean && !pools) continue;
      expect_layouts_equal({.family = "modernbert",
                            .layers = 4,
                            .dropout = 0.1,
                            .batches = {6, 5},
                            .ignored = pools ? 0 : 0.2,
                            .head = head,
                            .keys = is_mean ? R"({"classifier_pooling": "mean"})" : R"({"attention_bias": true,
                              "mlp_bias": true, "norm_bias": true, "classifier_bias": true})"},
                           encoder_layouts());
    }
}

TEST(EncoderGrid, ModernBertOfDocuments) {
  expect_layouts_equal(
      {.family = "modernbert", .layers = 4, .dropout = 0.1, .tokens = 12, .batches = {6, 5}, .documents = {5, 4, 3}},
      encoder_layouts());
}

// Neither windows nor positions extend into the next document.
TEST(PackedEncoders, DocumentsHaveTheLogitsThatTheyHaveAlone) {
  const torch::Tensor ids = (torch::arange(12) * 5 % 23).view({1, 12});
  const std::vector<std::int64_t> lengths = {5, 4, 3};
  const torch::Tensor documents =
      torch::repeat_interleave(torch::arange(3), torch::tensor(lengths, torch::kInt64)).view({1, 12});
  for (const char* family : {"modernbert", "nomic_bert", "distilbert"}) {
    const auto model = models::families().at(family).build({{"vocab_size", 23},
                                                            {"hidden_size", 12},
                                                            {"num_attention_heads", 3},
                                                            {"num_hidden_layers", 4},
                                                            {"intermediate_size", 11},
                                                            {"max_position_embeddings", 12},
                                                            {"local_attention", 4}});
    set_dtype(*model, torch::kFloat64);
    model->eval();
    auto& encoder = dynamic_cast<models::TextEncoderImpl&>(*model);
    const torch::Tensor packed = encoder.forward({{"input_ids", ids}, {"document_ids", documents}}).at("logits");
    std::int64_t begin = 0;
    for (const std::int64_t length : lengths) {
      const torch::Tensor alone = encoder.forward({{"input_ids", ids.narrow(1, begin, length)}}).at("logits");
      EXPECT_LE((packed.narrow(1, begin, length) - alone).abs().max().item<double>(), 1e-12) << family;
      begin += length;
    }
  }
}

TEST(EncoderGrid, DistilBertAndNomicBert) {
  for (const char* family : {"distilbert", "nomic_bert"})
    for (const char* head : {"ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"})
      expect_layouts_equal({.family = family,
                            .layers = 4,
                            .dropout = 0.1,
                            .batches = {6, 5},
                            .ignored = std::string(head) == "ForSequenceClassification" ? 0 : 0.2,
                            .head = head},
                           encoder_layouts());
  expect_layouts_equal(
      {.family = "distilbert", .layers = 4, .dropout = 0.1, .batches = {6, 5}, .head = "ForQuestionAnswering"},
      encoder_layouts());
}

TEST(EncoderGrid, Electra) {
  for (const char* head : {"ForMaskedLM", "ForSequenceClassification", "ForMultipleChoice"})
    expect_layouts_equal({.family = "electra",
                          .layers = 4,
                          .dropout = 0.1,
                          .batches = {6, 5},
                          .ignored = std::string(head) == "ForMaskedLM" ? 0.2 : 0,
                          .head = head,
                          .keys = R"({"embedding_size": 10, "summary_last_dropout": 0.1})"},
                         encoder_layouts());
}

TEST(EncoderGrid, MultipleChoice) {
  for (const char* family : {"bert", "roberta", "distilbert", "modernbert"})
    expect_layouts_equal(
        {.family = family, .layers = 4, .dropout = 0.1, .batches = {6, 5}, .head = "ForMultipleChoice"},
        encoder_layouts());
}

TEST(EncoderGrid, Vit) {
  expect_layouts_equal({.family = "vit", .layers = 4, .dropout = 0.1, .batches = {6, 5}}, encoder_layouts());
}

TEST(EncoderGrid, T5) {
  for (const bool tied : {true, false})
    expect_layouts_equal({.family = "t5",
                          .layers = 3,
                          .tied = tied,
                          .dropout = 0.1,
                          .batches = {6, 5},
                          .keys = tied ? "{}" : R"({"feed_forward_proj": "gated-gelu"})"},
                         encoder_layouts());
}

TEST(EncoderGrid, RelativeBiasOfEachLayer) {
  expect_layouts_equal({.family = "umt5", .layers = 3, .dropout = 0.1, .batches = {6, 5}}, encoder_layouts());
}

// Five layers: the encoder is on three stages, on two, or on a stage with the decoder's first layer.
TEST(EncoderGrid, T5SplitAnywhere) {
  std::vector<Parallelism> layouts;
  for (const int stages : {2, 3, 4, 5})
    for (const char* recompute : {"none", "full"})
      layouts.push_back({.layout = {.pipeline = stages}, .microbatches = 3, .recompute = recompute});
  layouts.push_back({.layout = {.pipeline = 4, .tensor = 2}, .microbatches = 2, .sequence_parallel = true});
  layouts.push_back({.layout = {.pipeline = 5}, .schedule = "zb_h1", .microbatches = 6});
  expect_layouts_equal({.family = "t5", .layers = 3, .dropout = 0.1}, layouts);
}

TEST(PairsGolden, SplitWithinTheEncoderOverThreeStages) {
  for (const char* name : {"t5", "t5_gated", "mt5", "umt5"}) {
    const std::string folder = std::string(GANTRY_SOURCE_DIR "/tests/golden/families/") + name;
    for (const int stages : {3, 5}) expect_family(folder, run_family(folder, {.pipeline = stages}, false), name);
    expect_family(folder, run_family(folder, {.pipeline = 4, .tensor = 2}, true), name);
  }
}

TEST(EncoderGrid, Bart) {
  for (const bool tied : {true, false})
    expect_layouts_equal({.family = "bart",
                          .layers = 3,
                          .tied = tied,
                          .dropout = 0.1,
                          .batches = {6, 5},
                          .keys = tied ? "{}" : R"({"scale_embedding": true})"},
                         encoder_layouts());
}

TEST(EncoderGrid, Pegasus) {
  expect_layouts_equal({.family = "pegasus",
                        .layers = 3,
                        .tied = true,
                        .dropout = 0.1,
                        .batches = {6, 5},
                        .keys = R"({"scale_embedding": true})"},
                       encoder_layouts());
}

TEST(EncoderGrid, Whisper) {
  for (const bool tied : {true, false})
    expect_layouts_equal({.family = "whisper", .layers = 3, .tied = tied, .dropout = 0.1, .batches = {6, 5}},
                         encoder_layouts());
}

TEST(EncoderGrid, WhisperSplitAnywhere) {
  std::vector<Parallelism> layouts;
  for (const int stages : {2, 3, 4, 5}) layouts.push_back({.layout = {.pipeline = stages}, .microbatches = 3});
  layouts.push_back({.layout = {.pipeline = 4, .tensor = 2}, .microbatches = 2, .sequence_parallel = true});
  expect_layouts_equal({.family = "whisper", .layers = 3, .dropout = 0.1}, layouts);
}

struct PlainModel {
  const char* family;
  json keys;
  std::vector<int> lists;
  TensorDict batch;
};

std::vector<PlainModel> plain_models() {
  const torch::Tensor ids = torch::arange(2 * 7).view({2, 7}) * 5 % 23;
  // With three ranks, one rank has none of the decoder's two tokens. Another one has a single token, which a
  // bias of one token would fit too.
  const TensorDict text{{"input_ids", ids}, {"decoder_input_ids", ids.narrow(1, 0, 2).contiguous()}};
  const torch::Tensor waves = torch::sin(torch::arange(2 * 3 * 36, torch::kFloat64));
  return {{"roberta",
           {{"vocab_size", 23},
            {"hidden_size", 12},
            {"num_attention_heads", 3},
            {"num_hidden_layers", 2},
            {"intermediate_size", 11},
            {"max_position_embeddings", 12}},
           {2},
           {{"input_ids", ids}}},
          {"t5", small_t5_keys(/*decoder_layers=*/1), {2, 1}, text},
          {"vit", small_vit_keys(), {2}, {{"pixel_values", waves.view({2, 3, 6, 6})}}},
          {"whisper",
           small_whisper_keys(),
           {2, 1},
           {{"input_features", waves.view({2, 6, 18})}, {"decoder_input_ids", text.at("decoder_input_ids")}}}};
}

// Logits of the model's own forward, and gradients of their weighted sum, as in a custom training loop.
std::pair<torch::Tensor, TensorDict> plain_step(const PlainModel& what, ProcessGroup* group, bool sequence_parallel) {
  const auto build = [&] {
    const DeferredInit deferred;
    auto model = models::families().at(what.family).build(what.keys);
    set_dtype(*model, torch::kFloat64);
    return model;
  };
  const auto model = build();
  const auto policy = policy_for(*model);
  const StageModule module = shard_model(model, policy,
                                         {.tensor_group = group,
                                          .layers_of_stage = {},
                                          .sequence_parallel = sequence_parallel,
                                          .gradient_sum = GradientSum::kInBackward});
  model->eval();
  const auto stage = StageContext::full(what.lists, what.batch);
  torch::Tensor logits = policy->forward(*model, *stage, what.batch).at("logits");
  if (group && std::string(what.family) != "vit")
    logits = gather_from_group(logits, *group, -1, nn::partition_sizes(23, *group));
  (logits * torch::cos(torch::arange(logits.numel(), torch::kFloat64)).view_as(logits)).sum().backward();
  TensorDict gradients;
  for (const auto& held : module.parameters)
    if (held.placement.shards.empty() && held.tensor.grad().defined())
      gradients.set(held.placement.name, held.tensor.grad());
  return {logits.detach(), gradients};
}

TEST(EncodersInALoopOfOnesOwn, GiveTheNumbersOfOneRank) {
  for (const PlainModel& what : plain_models()) {
    const auto expected = plain_step(what, nullptr, false);
    for (const int ranks : {2, 3})
      for (const bool sequence_parallel : {false, true})
        run_ranks(ranks, [&](World&, ProcessGroupMesh& mesh) {
          const auto [logits, gradients] = plain_step(what, &mesh["tp"], sequence_parallel);
          const std::string label = fmt::format("{} tp {} {}", what.family, ranks, sequence_parallel);
          EXPECT_LE((logits - expected.first).abs().max().item<double>(), 1e-10) << label;
          EXPECT_GE(gradients.size(), 5u) << label;
          for (const auto& [name, gradient] : gradients)
            EXPECT_LE((gradient - expected.second.at(name)).abs().max().item<double>(), 1e-10) << label << " " << name;
        });
  }
}

// The encoder's input tokens of each row, without padding.
std::vector<TokenIds> encoder_prompts(const std::string& folder) {
  const TensorDict inputs = read_safetensors(folder + "/inputs.safetensors");
  const torch::Tensor& ids = inputs.at("input_ids");
  std::vector<TokenIds> prompts;
  for (std::int64_t row = 0; row < ids.size(0); ++row) {
    const torch::Tensor mask = inputs.get("attention_mask");
    const std::int64_t size = mask.defined() ? mask[row].sum().item<std::int64_t>() : ids.size(1);
    const torch::Tensor text = ids[row].narrow(0, 0, size).contiguous();
    prompts.emplace_back(text.data_ptr<std::int64_t>(), text.data_ptr<std::int64_t>() + size);
  }
  return prompts;
}

TEST(PairsGolden, GreedyTokensOfWhatTheEncoderReads) {
  for (const char* name : {"t5", "t5_gated", "mt5", "umt5", "bart", "pegasus"}) {
    const std::string folder = std::string(GANTRY_SOURCE_DIR "/tests/golden/families/") + name;
    const json expected = json::parse(read_file(folder + "/generate.json"))["tokens"];
    const int layers = name[0] == 'b' || name[0] == 'p' ? 4 : 5;  // in encoder and decoder
    for (const bool cached : {true, false})
      for (const Layout& layout : layouts_to_run(turn_of<Layout>(next_turn("layouts"), 3,
                                                                 {{},
                                                                  {.tensor = 3},
                                                                  {.pipeline = 2, .tensor = 2},
                                                                  {.pipeline = layers},
                                                                  {.pipeline = 2, .data = 2},
                                                                  {.context = 2}}))) {
        const GenerationJob job{.name = "greedy",
                                .prompts = encoder_prompts(folder),
                                .options = {.max_new_tokens = 12, .use_cache = cached}};
        EXPECT_EQ(json(tokens_of(generate_in(layout, folder, {job}).at(0))), expected) << name << describe(layout);
      }
  }
}

void expect_beams(const std::string& folder) {
  const auto job = [&](bool cached) {
    return GenerationJob{
        .name = "beams",
        .prompts = encoder_prompts(folder),
        .options = {.max_new_tokens = 7, .num_beams = 3, .num_return_sequences = 2, .use_cache = cached}};
  };
  const auto expected = tokens_of(generate_in({}, folder, {job(false)}).at(0));
  ASSERT_EQ(expected.size(), 8u);
  EXPECT_EQ(tokens_of(generate_in({.pipeline = 3, .tensor = 2}, folder, {job(true)}).at(0)), expected);
  EXPECT_EQ(tokens_of(generate_in({.tensor = 2}, folder, {job(true)}, {"parallel.sequence_parallel=true"}).at(0)),
            expected);
}

TEST(PairsGolden, BeamsAndShardsOfSequencesGiveTheTokensOfFullTexts) {
  for (const char* name : {"t5", "umt5", "bart"})
    expect_beams(std::string(GANTRY_SOURCE_DIR "/tests/golden/families/") + name);
}

// The buckets of transformers for a query at position 9 of 12 tokens, with 8 buckets up to a distance of 20.
// Computed by hand from the formula.
TEST(RelativeBuckets, AreOneDistanceEachAndThenGrow) {
  const auto row = [](const models::RelativeBuckets& buckets, std::int64_t query, std::int64_t keys) {
    const torch::Tensor places = torch::arange(keys);
    const torch::Tensor found = models::relative_buckets(buckets, places, places)[query].contiguous();
    return std::vector<std::int64_t>(found.data_ptr<std::int64_t>(), found.data_ptr<std::int64_t>() + keys);
  };
  using Row = std::vector<std::int64_t>;
  // Both directions: distances 0 and 1 have a bucket each, 2 to 6 share one, and so do all from 7 on. Keys
  // after the query have four other buckets.
  EXPECT_EQ(row({true, 8, 20}, 9, 12), (Row{3, 3, 3, 2, 2, 2, 2, 2, 1, 0, 5, 6}));
  // One direction: distances 0 to 3 have a bucket each.
  EXPECT_EQ(row({false, 8, 20}, 9, 12), (Row{6, 5, 5, 5, 4, 4, 3, 2, 1, 0, 0, 0}));
  // A subset of the queries, at any positions.
  const torch::Tensor places = torch::arange(12), some = torch::tensor({10, 2}, torch::kInt64);
  const torch::Tensor full = models::relative_buckets({false, 8, 20}, places, places);
  EXPECT_TRUE(torch::equal(models::relative_buckets({false, 8, 20}, some, places), full.index_select(0, some)));
}

std::string refusal_of(const std::string& family, const json& keys) {
  return thrown_by([&] { models::families().at(family).build(keys); });
}

TEST(EncoderKeys, WhatIsNotUnderstoodIsRefused) {
  EXPECT_THAT(refusal_of("roberta", {{"pad_token_id", nullptr}}), HasSubstr("positions are counted from the next row"));
  EXPECT_THAT(refusal_of("vit", {{"problem_type", "ranking"}}),
              HasSubstr("one of single_label_classification, regression, multi_label_classification"));
  EXPECT_THAT(refusal_of("vit", {{"patch_size", 300}}), HasSubstr("at most image_size 224"));
  EXPECT_THAT(refusal_of("whisper", {{"apply_spec_augment", true}}), HasSubstr("apply_spec_augment"));
  EXPECT_THAT(refusal_of("whisper", {{"decoder_attention_heads", 7}}), HasSubstr("decoder_attention_heads 7"));
  EXPECT_THAT(refusal_of("whisper", {{"encoder_layerdrop", 0.1}}), HasSubstr("encoder_layerdrop"));
  EXPECT_THAT(refusal_of("t5", {{"feed_forward_proj", "gated-swoosh"}}), HasSubstr("gated-gelu"));
  EXPECT_THAT(refusal_of("t5", {{"is_gated_act", true}}), HasSubstr("is_gated_act"));
  EXPECT_THAT(refusal_of("t5", {{"relative_attention_num_buckets", 7}}), HasSubstr("an even number"));
  EXPECT_THAT(refusal_of("t5", {{"pad_token_id", 40000}}), HasSubstr("below vocab_size 32128"));
  EXPECT_THAT(refusal_of("distilbert", {{"sinusoidal_pos_embds", true}}), HasSubstr("trains the positions"));
  EXPECT_THAT(refusal_of("nomic_bert", {{"prenorm", true}}), HasSubstr("transformers has no such NomicBERT"));
  EXPECT_THAT(refusal_of("nomic_bert", {{"num_experts", 8}}), HasSubstr("num_experts"));
  EXPECT_THAT(refusal_of("nomic_bert", {{"activation_function", "gelu"}}), HasSubstr("swiglu"));
  EXPECT_THAT(refusal_of("modernbert", {{"classifier_pooling", "max"}}), HasSubstr("one of cls, mean"));
  EXPECT_THAT(refusal_of("modernbert", {{"layer_types", {"full_attention"}}}), HasSubstr("a list of 22 words"));
  EXPECT_THAT(refusal_of("bart", {{"normalize_before", true}}), HasSubstr("another model than BART"));
  EXPECT_THAT(refusal_of("bart", {{"decoder_layerdrop", 0.1}}), HasSubstr("decoder_layerdrop"));
  EXPECT_THAT(refusal_of("pegasus", {{"normalize_before", false}}), HasSubstr("another model than Pegasus"));
}

// Files of NomicBERT that have only keys of their own.
TEST(EncoderKeys, OlderFilesAreExportedForTransformers) {
  const json full = models::families()
                        .at("nomic_bert")
                        .hugging_face_config({{"n_embd", 24},
                                              {"n_inner", 36},
                                              {"n_layer", 2},
                                              {"n_head", 3},
                                              {"n_positions", 64},
                                              {"activation_function", "swiglu"},
                                              {"rotary_emb_base", 1000}});
  EXPECT_EQ(full["hidden_size"], 24);
  EXPECT_EQ(full["intermediate_size"], 36);
  EXPECT_EQ(full["num_hidden_layers"], 2);
  EXPECT_EQ(full["max_position_embeddings"], 64);
  EXPECT_EQ(full["hidden_act"], "silu");
  EXPECT_EQ(full["rope_parameters"]["rope_theta"], 1000);
}

TEST(EncoderPolicies, AreChosenByTheModel) {
  const DeferredInit deferred;
  for (const char* family : {"bert", "roberta", "xlm-roberta", "distilbert", "nomic_bert", "electra", "modernbert",
                             "vit", "t5", "mt5", "umt5", "bart", "pegasus", "whisper"})
    EXPECT_EQ(policy_name_for(*models::families().at(family).build(json::object())), family);
}

}  // namespace
}  // namespace gantry::testing
