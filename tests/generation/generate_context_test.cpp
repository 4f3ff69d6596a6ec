// Sequences that ranks share in generation: every method gives the tokens and scores of one rank, also with
// other axes, and caches stay sharded.
#include "gantry/booster/gantry.h"
#include "gantry/generation/text_group.h"
#include "generation_case.h"

namespace gantry::testing {
namespace {

// Prompts of unequal lengths. One of them is shorter than the number of ranks in some layouts.
const std::vector<TokenIds> kSharedPrompts = {{5, 17, 42, 8, 9, 31, 2, 28, 40, 11, 3}, {7, 1, 19}, {33, 3, 16, 23, 11}};

// Beams have scores, which depend on all tokens.
std::vector<GenerationJob> shared_jobs() {
  return {{"greedy", kSharedPrompts, {.max_new_tokens = 9}},
          {"sampled",
           kSharedPrompts,
           {.max_new_tokens = 7, .sample = true, .top_k = 0, .seed = 3, .num_return_sequences = 2}},
          {"beams", kSharedPrompts, {.max_new_tokens = 8, .num_beams = 3, .num_return_sequences = 3}},
          {"short", {{7}, {13, 2}}, {.max_new_tokens = 9, .num_beams = 2}}};
}

struct SharingModel {
  const char* family;
  const char* keys;  // keys of config.json in addition to those below
};

Config config_of(const SharingModel& model, const std::string& method) {
  nlohmann::json keys = nlohmann::json::parse(R"({"num_hidden_layers": 2, "num_attention_heads": 6,
      "num_key_value_heads": 2, "hidden_size": 24, "intermediate_size": 20, "vocab_size": 53,
      "max_position_embeddings": 40, "initializer_range": 0.4})");
  if (std::string(model.family) == "gpt2" || std::string(model.family) == "bloom")
    keys = nlohmann::json::parse(R"({"n_layer": 2, "n_head": 6, "n_embd": 24, "hidden_size": 24, "vocab_size": 53,
                                     "n_positions": 40, "initializer_range": 0.4})");
  if (std::string(model.family) == "bloom") keys.erase("n_embd"), keys.erase("n_positions");
  if (std::string(model.family) == "gpt2") keys.erase("hidden_size");
  if (std::string(model.family) == "t5" || std::string(model.family) == "whisper") keys = nlohmann::json::object();
  keys.update(nlohmann::json::parse(model.keys));
  Config config;
  config.model = {.policy = model.family, .path = "", .config_json = keys.dump()};
  config.precision = "float64";
  config.parallel.context_method = method;
  return config;
}

void expect_shared_equally(const std::vector<Sequences>& expected, const SharingModel& model, const std::string& method,
                           const Layout& layout, const std::vector<GenerationJob>& jobs = shared_jobs()) {
  const auto found = generate_in(layout, config_of(model, method), jobs);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t job = 0; job < found.size(); ++job) {
    const std::string label = std::string(model.family) + " " + method + ", " + jobs[job].name + ", ";
    ASSERT_EQ(tokens_of(found[job]), tokens_of(expected[job])) << label << describe(layout);
    for (std::size_t i = 0; i < found[job].size(); ++i)
      ASSERT_NEAR(found[job][i].score, expected[job][i].score, 1e-10) << label << describe(layout);
  }
}

TEST(GenerateContext, EveryMethodWithOtherAxesHasTheTokensOfOneRank) {
  const std::pair<const char*, Layout> layouts[] = {{"all_gather", {.context = 2}},
                                                    {"ring", {.context = 3}},
                                                    {"ulysses", {.context = 2}},
                                                    {"ulysses_ring", {.context = 4}},
                                                    {"ring", {.tensor = 3, .context = 2}},
                                                    {"all_gather", {.pipeline = 2, .context = 2}},
                                                    {"auto", {.pipeline = 2, .data = 2, .context = 2}}};
  for (const SharingModel& model : {SharingModel{"gpt2", "{}"}, SharingModel{"llama", "{}"}}) {
    const auto expected = generate_in({}, config_of(model, "auto"), shared_jobs());
    for (const auto& [method, layout] : layouts) {
      expect_shared_equally(expected, model, method, layout);
      if (HasFailure()) return;
    }
  }
}

TEST(GenerateContext, EveryKindOfScore) {
  const SharingModel models[] = {
      {"mistral", R"({"sliding_window": 3, "head_dim": 10})"},
      {"mistral", R"({"sliding_window": 12, "head_dim": 4})"},
      {"gemma2", R"({"sliding_window": 5, "head_dim": 8, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 2.0,
                     "final_logit_softcapping": 3.0})"},
      {"bloom", "{}"},
      {"gpt_oss", R"({"num_local_experts": 5, "num_experts_per_tok": 2, "head_dim": 6, "intermediate_size": 9,
                      "sliding_window": 3, "swiglu_limit": 0.5})"},
      {"phi3", R"({"original_max_position_embeddings": 14, "rope_scaling": {"type": "su",
                   "short_factor": [1, 1.1], "long_factor": [1, 2]}})"},
      {"deepseek_v3", R"({"num_key_value_heads": 6, "q_lora_rank": 10, "kv_lora_rank": 8, "qk_nope_head_dim": 5,
           "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 8, "num_experts_per_tok": 3,
           "moe_intermediate_size": 7, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
           "first_k_dense_replace": 1})"},
      {"mixtral", R"({"num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": true})"}};
  for (const SharingModel& model : models) {
    const auto expected = generate_in({}, config_of(model, "auto"), shared_jobs());
    for (const auto& [method, layout] :
         {std::pair("ring", Layout{.context = 3}), std::pair("all_gather", Layout{.tensor = 2, .context = 2})}) {
      expect_shared_equally(expected, model, method, layout);
      if (HasFailure()) return;
    }
  }
}

const SharingModel kReadingT5{"t5", R"({"d_model": 24, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_decoder_layers": 2,
    "num_heads": 6, "vocab_size": 53, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20,
    "decoder_start_token_id": 0, "pad_token_id": 0, "initializer_factor": 2.0})"};
const SharingModel kReadingWhisper{"whisper", R"({"d_model": 24, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20,
    "num_mel_bins": 4, "max_source_positions": 10, "max_target_positions": 40, "vocab_size": 53, "init_std": 0.4,
    "decoder_start_token_id": 2, "pad_token_id": 0})"};

// The encoder's input is sharded. Its keys and values stay sharded, and so do those of the prompts.
TEST(GenerateContext, TextsThatReadAnEncoder) {
  const std::pair<const char*, Layout> layouts[] = {{"all_gather", {.context = 2}},
                                                    {"ring", {.context = 3}},
                                                    {"ulysses", {.context = 2}},
                                                    {"ulysses_ring", {.context = 4}},
                                                    {"ring", {.tensor = 2, .context = 2}},
                                                    {"all_gather", {.pipeline = 2, .context = 2}},
                                                    {"auto", {.pipeline = 3, .data = 2, .context = 2}}};
  const torch::Tensor sounds = torch::sin(torch::arange(3 * 4 * 20, torch::kFloat64)).view({3, 4, 20});
  auto of_sounds = shared_jobs();
  of_sounds.pop_back();  // the last job has only two prompts
  for (auto& job : of_sounds) {
    job.prompts = {{2}, {2, 5, 9, 1, 30}, {2, 11}};
    job.options.encoder.set("input_features", sounds);
  }
  for (const auto& [model, jobs] : {std::pair(kReadingT5, shared_jobs()), std::pair(kReadingWhisper, of_sounds)}) {
    const auto expected = generate_in({}, config_of(model, "auto"), jobs);
    for (const auto& [method, layout] : layouts) {
      expect_shared_equally(expected, model, method, layout, jobs);
      if (HasFailure()) return;
    }
  }
}

// Without a cache, every rank computes the full sequence for each token.
TEST(GenerateContext, WithoutACache) {
  const SharingModel model{"llama", "{}"};
  GenerationJob job{"greedy", kSharedPrompts, {.max_new_tokens = 6, .use_cache = false}};
  Config config = config_of(model, "ring");
  const auto expected = generate_in({}, config, {job});
  EXPECT_EQ(tokens_of(generate_in({.pipeline = 2, .context = 2}, config, {job})[0]), tokens_of(expected[0]));
  job.options.use_cache = true;
  config.parallel.sequence_parallel = true;
  EXPECT_EQ(tokens_of(generate_in({.tensor = 2, .context = 2}, config, {job})[0]), tokens_of(expected[0]));
}

// Capacity, in tokens, of each rank's cache of the last layer, for 32 tokens and 17 new ones. The last token
// is not cached, because no token follows it. The capacity stays the same while the sequence grows.
std::vector<std::int64_t> tokens_kept(int context, const std::string& method, const SharingModel& model) {
  Config config = config_of(model, method);
  config.parallel.context = context;
  config.comm.timeout_seconds = 30;
  std::vector<std::int64_t> kept(context);
  const int code = start_ranks()(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto boosted = booster.boost(build_model(config), nullptr, cross_entropy());
    const torch::NoGradGuard no_grad;
    generation::TextGroup group({TokenIds(32, 5), TokenIds(32, 7)},
                                {.max_new_tokens = 17, .parts = plugin->sequence_parts(boosted)}, world.device());
    for (int round = 0; round < 17; ++round) {
      const TensorDict input = group.input();
      boosted.model->stage_module().forward(0, input, {.batch = input, .tokens = group.context()});
      const std::int64_t capacity = group.context()->caches->of(1).capacity();
      if (round == 0) kept[world.rank()] = capacity;
      EXPECT_EQ(capacity, kept[world.rank()]) << round;
      if (round < 16) group.apply({.tokens = {1, 2}, .sources = {0, 1}, .joined = {1, 1}});
    }
  });
  EXPECT_EQ(code, 0);
  return kept;
}

// Each rank keeps its share of the encoder's eleven tokens for the decoder, and of the decoder's own nine.
TEST(GenerateContext, EachRankKeepsItsShareOfWhatIsRead) {
  Config config = config_of(kReadingT5, "ring");
  config.parallel.context = 2;
  config.comm.timeout_seconds = 30;
  std::vector<std::int64_t> read(2), own(2);
  const int code = start_ranks()(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto boosted = booster.boost(build_model(config), nullptr, cross_entropy());
    const torch::NoGradGuard no_grad;
    generation::TextGroup group({TokenIds(11, 5), TokenIds(4, 7)},
                                {.max_new_tokens = 9, .begin = {0}, .parts = plugin->sequence_parts(boosted)},
                                world.device());
    for (int round = 0; round < 9; ++round) {
      const TensorDict input = group.input();
      boosted.model->stage_module().forward(0, input, {.batch = input, .tokens = group.context()});
      // The caches of the decoder's two layers come first.
      read[world.rank()] = group.context()->caches->of(2).tokens();
      own[world.rank()] = group.context()->caches->of(0).tokens();
      if (round < 8) group.apply({.tokens = {1, 2}, .sources = {0, 1}, .joined = {1, 1}});
    }
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(read, (std::vector<std::int64_t>{6, 5}));
  EXPECT_EQ(own, (std::vector<std::int64_t>{5, 4}));
}

TEST(GenerateContext, EachRankKeepsItsShareOfTheKeysAndValues) {
  const SharingModel full{"llama", R"({"max_position_embeddings": 64})"};
  EXPECT_EQ(tokens_kept(1, "auto", full), std::vector<std::int64_t>{48});
  for (const int context : {2, 3, 4})
    EXPECT_EQ(tokens_kept(context, "ring", full), std::vector<std::int64_t>(context, 48 / context));
  EXPECT_EQ(tokens_kept(2, "all_gather", full), std::vector<std::int64_t>(2, 24));
  // Memory for two windows, as on one rank.
  const SharingModel windows{"mistral", R"({"max_position_embeddings": 64, "sliding_window": 8})"};
  for (const int context : {2, 4})
    EXPECT_EQ(tokens_kept(context, "ring", windows), std::vector<std::int64_t>(context, 16 / context));
}

}  // namespace
}  // namespace gantry::testing
