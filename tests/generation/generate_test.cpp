// Generation: sampling, caches, callbacks, plain models, custom models, and rejected calls.
#include <atomic>
#include <nlohmann/json.hpp>

#include "gantry/booster/gantry.h"
#include "gantry/tensors/libtorch.h"
#include "generation_case.h"

namespace gantry::testing {
namespace {

const std::vector<TokenIds> kPrompts = {{5, 17, 42, 8, 99}, {7}, {100, 3, 56, 23, 11, 200, 9}, {13, 13, 2}};

GenerationJob sampled(int sequences = 1, std::uint64_t seed = 3) {
  return {"sampled",
          kPrompts,
          {.max_new_tokens = 12,
           .repetition_penalty = 1.2,
           .sample = true,
           .temperature = 0.9,
           .top_k = 60,
           .top_p = 0.95,
           .seed = seed,
           .num_return_sequences = sequences}};
}

TEST(Generate, DrawsTheSameTokensInEveryLayout) {
  for (const char* model : {"gpt2", "llama"}) {
    const std::vector<GenerationJob> jobs = {sampled(), sampled(3), sampled(1, 4)};
    const auto one = generate_in({}, golden_model(model), jobs);
    EXPECT_NE(tokens_of(one[0]), tokens_of(one[2])) << "another seed draws others";
    EXPECT_NE(one[1][0].tokens, one[1][1].tokens) << "each sequence draws for itself";
    ASSERT_EQ(one[1].size(), 12u);
    EXPECT_EQ(one[1][5].prompt, 1);
    for (const Layout& layout :
         {Layout{.tensor = 3}, Layout{.pipeline = 3}, Layout{.pipeline = 4, .tensor = 2}, Layout{.data = 3}})
      for (std::size_t i = 0; i < jobs.size(); ++i)
        EXPECT_EQ(tokens_of(generate_in(layout, golden_model(model), {jobs[i]})[0]), tokens_of(one[i]))
            << model << " " << describe(layout);
  }
}

TEST(Generate, DrawsKeepWithinTheirFilters) {
  GenerationJob narrow = sampled();
  narrow.options.repetition_penalty = 1;
  narrow.options.top_k = 1;
  GenerationJob nearly_all = narrow;
  nearly_all.options.top_k = 0;
  nearly_all.options.top_p = 1e-9;
  GenerationJob most_likely = nearly_all;
  most_likely.options.top_p = 1;
  most_likely.options.min_p = 1;
  const GenerationJob greedy{"greedy", kPrompts, {.max_new_tokens = 12}};
  const auto got = generate_in({}, golden_model("llama"), {narrow, nearly_all, greedy, most_likely});
  EXPECT_EQ(tokens_of(got[0]), tokens_of(got[2]));
  EXPECT_EQ(tokens_of(got[1]), tokens_of(got[2]));
  EXPECT_EQ(tokens_of(got[3]), tokens_of(got[2]));
}

TEST(Generate, FiltersAndProhibitionsOfSamplesHoldInEveryLayout) {
  GenerationJob job = sampled(2);
  job.options.no_repeat_ngram_size = 2;
  job.options.bad_words = {{3}, {17, 42}};
  job.options.sequence_bias = {{{5}, 1.5}, {{42, 7}, -0.5}};
  job.options.forced_eos_tokens = {9};
  job.options.min_p = 0.02;
  job.options.typical_p = 0.9;
  const auto one = generate_in({}, golden_model("llama"), {job, sampled(2)});
  EXPECT_NE(tokens_of(one[0]), tokens_of(one[1]));
  for (const auto& sequence : one[0]) EXPECT_EQ(sequence.tokens.back(), 9);
  for (const Layout& layout : {Layout{.tensor = 3}, Layout{.pipeline = 2, .tensor = 2}, Layout{.data = 3}})
    EXPECT_EQ(tokens_of(generate_in(layout, golden_model("llama"), {job})[0]), tokens_of(one[0])) << describe(layout);
}

// Compared with computing every token from the full sequence, without padding on the left.
TEST(Generate, ACacheChangesNoToken) {
  for (const char* model : {"gpt2", "llama", "llama_tied_gqa1", "generation/llama_gqa3"}) {
    std::vector<TokenIds> prompts = kPrompts;
    for (auto& prompt : prompts)
      for (auto& token : prompt) token %= 90;
    GenerationJob cached{"greedy", prompts, {.max_new_tokens = 20}},
        beams{"beams", prompts, {.max_new_tokens = 8, .num_beams = 3}};
    GenerationJob full = cached, full_beams = beams;
    full.options.use_cache = full_beams.options.use_cache = false;
    for (const Layout& layout : {Layout{}, Layout{.pipeline = 2, .tensor = 3}}) {
      const auto got = generate_in(layout, golden_model(model), {cached, full, beams, full_beams});
      EXPECT_EQ(tokens_of(got[0]), tokens_of(got[1])) << model << " " << describe(layout);
      EXPECT_EQ(tokens_of(got[2]), tokens_of(got[3])) << model << " " << describe(layout);
    }
  }
}

// Longer than 64 tokens, the step in which a cache allocates memory.
TEST(Generate, TextsOutgrowTheFirstMemoryOfACache) {
  const std::string keys =
      R"({"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 50, "n_positions": 200, "initializer_range": 0.5})";
  Config config = layout_config({});
  config.model = {.policy = "gpt2", .path = "", .config_json = keys};
  auto model = build_model(config);
  materialize(*model, 1);
  GenerationOptions options{.max_new_tokens = 150};
  const auto cached = generate(*model, {{1, 2, 3}}, options);
  options.use_cache = false;
  const auto full = generate(*model, {{1, 2, 3}}, options);
  ASSERT_EQ(cached[0].tokens.size(), 150u);
  EXPECT_EQ(cached[0].tokens, full[0].tokens);
}

TEST(Generate, CacheGivesTheLogitsOfAFullForward) {
  for (const std::string name : {"gpt2", "llama"}) {
    Config config = layout_config({});
    config.precision = "float64";
    config.model.policy = name;
    config.model.config_json = name == "gpt2"
                                   ? R"({"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 50, "n_positions": 20})"
                                   : R"({"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                                         "hidden_size": 16, "intermediate_size": 24, "vocab_size": 50})";
    auto model = build_model(config);
    materialize(*model, 1);
    model->eval();
    const torch::NoGradGuard no_grad;
    const auto policy = policy_for(*model);
    const StageModule stage(model, policy, {{0, 2}});
    const torch::Tensor ids = (torch::arange(12).view({2, 6}) * 7) % 50;
    const torch::Tensor full = stage.forward(0, {{"input_ids", ids}}, {}).at("logits");
    nn::LayerCaches caches;
    // Two tokens, then three at once, then one.
    std::int64_t done = 0;
    for (const std::int64_t count : {2, 3, 1}) {
      const nn::TokenContext tokens{
          .keep = {}, .positions = torch::arange(done, done + count).expand({2, count}), .caches = &caches};
      const torch::Tensor part =
          stage.forward(0, {{"input_ids", ids.narrow(1, done, count)}}, {.tokens = tokens}).at("logits");
      EXPECT_LE((part - full.narrow(1, done, count)).abs().max().item<double>(), 1e-12) << name << " " << done;
      done += count;
    }
    EXPECT_EQ(caches.of(1).tokens(), 6);
  }
}

TEST(Generate, TellsEachTokenAsItComes) {
  const auto folder = golden_model("gpt2");
  std::mutex lock;
  std::map<std::int64_t, TokenIds> notified;
  GenerationJob job{"greedy", kPrompts, {.max_new_tokens = 9}};
  job.options.stop_tokens = {generate_in({}, folder, {job})[0][2].tokens[3]};
  GenerationJob reported_of = job;
  reported_of.options.on_token = [&](std::int64_t sequence, std::int64_t token) {
    const std::lock_guard guard(lock);
    notified[sequence].push_back(token);
  };
  const auto got = generate_in({.pipeline = 2}, folder, {reported_of})[0];
  ASSERT_EQ(got.size(), 4u);
  EXPECT_TRUE(got[2].stopped);
  EXPECT_LE(got[2].tokens.size(), 4u);
  for (std::size_t i = 0; i < got.size(); ++i) {
    TokenIds twice;  // from each of the two stages' ranks, in any order
    for (const auto token : got[i].tokens) twice.insert(twice.end(), 2, token);
    TokenIds heard = notified[static_cast<std::int64_t>(i)];
    std::sort(twice.begin(), twice.end());
    std::sort(heard.begin(), heard.end());
    EXPECT_EQ(heard, twice) << i;
  }
}

TEST(Generate, EndsWhereItIsAskedTo) {
  std::atomic<int> asked{0};
  GenerationJob job{"greedy", {kPrompts[0]}, {.max_new_tokens = 9}};
  const auto full = generate_in({}, golden_model("gpt2"), {job})[0];
  job.options.ends = [&] { return ++asked == 3; };
  const auto ended = generate_in({.pipeline = 2}, golden_model("gpt2"), {job})[0];
  EXPECT_EQ(ended[0].tokens, TokenIds(full[0].tokens.begin(), full[0].tokens.begin() + 3));
  EXPECT_EQ(asked, 3) << "on the last stage alone";
}

TEST(Generate, SequenceShardsAreComputedInFull) {
  const ReferenceCases cases = read_reference_cases("gpt2");
  const auto got = generate_in({.pipeline = 2, .tensor = 2}, cases.folder, {cases.jobs[0], cases.jobs[5]},
                               {"parallel.sequence_parallel=true"});
  EXPECT_EQ(tokens_of(got[0]), cases.tokens[0]);
  EXPECT_EQ(tokens_of(got[1]), cases.tokens[5]);
}

TEST(Generate, SeveralStagesOfARank) {
  const ReferenceCases cases = read_reference_cases("gpt2");
  for (const char* schedule : {"schedule.name=interleaved_1f1b", "schedule.name=zb_v"}) {
    const auto got =
        generate_in({.pipeline = 2}, cases.folder, {cases.jobs[0], cases.jobs[5]}, {schedule, "schedule.chunks=2"});
    EXPECT_EQ(tokens_of(got[0]), cases.tokens[0]) << schedule;
    EXPECT_EQ(tokens_of(got[1]), cases.tokens[5]) << schedule;
  }
}

// generate() of a model that initialize() boosted: greedy tokens, beams and samples, the same on every rank.
// For a model with other heads split like this, see Bert in tests/plugins/model_grid_test.cpp.
TEST(Generate, C5TensorParallelRanksGiveTheTokensOfOneDevice) {
  const ReferenceCases cases = read_reference_cases("llama");
  const auto drawn = tokens_of(generate_in({}, cases.folder, {sampled()})[0]);
  const ScratchFolder scratch;
  const std::string yaml = scratch.write("tp.yaml", "parallel: {tensor: 2}\n");
  Config config = Config::parse(nlohmann::json({{"model", {{"path", cases.folder}}}}).dump(), "test");
  config = resolve_model(std::move(config));
  run_ranks(2, [&](World&, ProcessGroupMesh& mesh) {
    auto model = build_model(config);
    auto [booster, boosted] = initialize(*model, yaml);
    load_weights(config, boosted, mesh);
    for (const std::size_t i : {0, 3, 5, 7})
      EXPECT_EQ(tokens_of(booster.generate(boosted, cases.jobs[i].prompts, cases.jobs[i].options)), cases.tokens[i])
          << cases.jobs[i].name;
    EXPECT_EQ(tokens_of(booster.generate(boosted, sampled().prompts, sampled().options)), drawn);
    EXPECT_TRUE(model->is_training()) << "as before";
  });
}

// A custom model whose policy does not support caches: the next token is the sum of the last two.
struct SummingImpl : torch::nn::Module {
  SummingImpl() {
    table = register_module("table", nn::Embedding(10, 10));
    layers = register_module("layers", torch::nn::ModuleList());
    layers->push_back(torch::nn::Identity());
    torch::NoGradGuard no_grad;
    table->weight.copy_(torch::eye(10));
  }
  nn::Embedding table{nullptr};
  torch::nn::ModuleList layers;
};
TORCH_MODULE(Summing);

struct SummingPolicy final : PolicyFor<SummingImpl> {
  std::string name() const override { return "SummingPolicy"; }
  ModelSplit split(const SummingImpl&) const override { return {.stages = {{"table"}, "layers", {}}}; }
  TensorDict forward(SummingImpl& model, const StageContext&, TensorDict input) const override {
    const torch::Tensor ids = input.at("input_ids");
    const torch::Tensor before = torch::constant_pad_nd(ids.narrow(1, 0, ids.size(1) - 1), {1, 0});
    return {{"logits", model.table((ids + before) % 10)}};
  }
};

TEST(Generate, APolicyWithoutACacheComputesFullTexts) {
  policies().add<SummingPolicy>("summing");
  Summing model;
  const auto got = generate(model, {{1, 1}, {2, 3, 5, 8}, {4}}, {.max_new_tokens = 5});
  EXPECT_EQ(tokens_of(got), (std::vector<TokenIds>{{2, 3, 5, 8, 3}, {3, 1, 4, 5, 9}, {4, 8, 2, 0, 2}}));
}

// For every way of choosing tokens, the error names the
// prompt and the step, and no token is generated instead.
TEST(Generate, LogitsThatAreNoNumbersAreRefused) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  for (const double poison : {std::nan(""), kInfinite})
    for (const GenerationOptions& options :
         std::vector<GenerationOptions>{{.max_new_tokens = 4},
                                        {.max_new_tokens = 4, .repetition_penalty = 1.1},
                                        {.max_new_tokens = 4, .sample = true, .num_return_sequences = 2},
                                        {.max_new_tokens = 4, .num_beams = 2}}) {
      Config config = layout_config({});
      config.model = {.policy = "gpt2",
                      .path = "",
                      .config_json = R"({"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 20, "n_positions": 16,
                                         "tie_word_embeddings": false})"};
      auto model = build_model(config);
      materialize(*model, 1);
      {
        const torch::NoGradGuard no_grad;
        model->named_parameters()["wte.weight"][13].fill_(poison);  // only in the second prompt
      }
      try {
        generate(*model, {{1, 2}, {4, 13, 5}, {3}}, options);
        ADD_FAILURE() << "no error";
      } catch (const NumericalError& error) {
        EXPECT_NE(std::string(error.what())
                      .find("generate: new token 1 of prompt 2 has a largest logit of nan; "
                            "expected a finite number"),
                  std::string::npos)
            << error.what();
      }
    }
}

TEST(Generate, ARankWhoseColumnsAreNoNumbersIsNamed) {
  Config config = layout_config({.pipeline = 2, .tensor = 2});
  config.model = {.policy = "gpt2",
                  .path = "",
                  .config_json = R"({"n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 20, "n_positions": 16,
                                     "tie_word_embeddings": false})"};
  for (const bool sample : {false, true}) {
    ::testing::internal::CaptureStderr();
    const int code = start_ranks()(config, [&](World& world) {
      auto* plugin = new HybridParallelPlugin(world, config);
      Booster booster{std::unique_ptr<Plugin>(plugin)};
      auto boosted = booster.boost(build_model(config), nullptr, cross_entropy());
      const torch::NoGradGuard no_grad;
      if (world.rank() == 3)  // the second columns of the last stage: token 13
        boosted.model->module().named_parameters()["lm_head.weight"][3].fill_(std::nan(""));
      generate(boosted, *plugin, {{1, 2}, {4, 5}}, {.max_new_tokens = 3, .sample = sample});
    });
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(code, 8) << said;
    EXPECT_NE(said.find("new token 1 of prompt 1 has a largest logit of nan on rank "), std::string::npos) << said;
    EXPECT_NE(said.find("(pp 1, dp 0, tp "), std::string::npos) << said;
  }
}

struct Refused {
  GenerationOptions options;
  std::vector<TokenIds> prompts;
  int code;
  const char* part;  // part of the error message
};

TEST(Generate, RefusesWhatCannotBe) {
  Config config = layout_config({});
  config.model = {.policy = "gpt2",
                  .path = "",
                  .config_json = R"({"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 20, "n_positions": 16})"};
  auto model = build_model(config);
  materialize(*model, 1);
  const std::vector<TokenIds> fine = {{1, 2}};
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const Refused all[] = {
      {{}, {}, 2, "there is no prompt"},
      {{}, {{1}, {}}, 4, "prompt 2: the prompt is empty"},
      {{}, {TokenIds(16, 1)}, 4, "has 16 tokens; expected fewer than the model's 16 positions"},
      {{.max_new_tokens = 15},
       fine,
       4,
       "15 tokens after a prompt of 2 make 17 tokens; expected at most the model's 16"},
      {{.max_new_tokens = 0}, fine, 2, "max_new_tokens: the value is 0"},
      {{.max_length = 2}, fine, 2, "max_length: the value is 2, but the longest prompt has 2 tokens"},
      {{}, {{1, 20}}, 4, "20 at [0, 1] is outside the vocabulary of 20 tokens"},
      {{.sample = true, .temperature = 0}, fine, 2, "temperature: the value is 0"},
      {{.sample = true, .temperature = 1e-320}, fine, 2, "temperature: the value is 1e-320"},
      {{.sample = true, .temperature = kInfinite}, fine, 2, "temperature: the value is inf"},
      {{.repetition_penalty = kInfinite}, fine, 2, "repetition_penalty: the value is inf"},
      {{.num_beams = 2, .length_penalty = std::nan("")}, fine, 2, "length_penalty: the value is nan"},
      {{.max_new_tokens = std::numeric_limits<std::int64_t>::max()},
       fine,
       2,
       "max_new_tokens: the value is 9223372036854775807"},
      {{.sample = true, .top_p = 0}, fine, 2, "top_p: the value is 0"},
      {{.sample = true, .top_k = -1}, fine, 2, "top_k: the value is -1"},
      {{.sample = true, .min_p = 1.5}, fine, 2, "min_p: the value is 1.5"},
      {{.sample = true, .typical_p = 0}, fine, 2, "typical_p: the value is 0"},
      {{.no_repeat_ngram_size = -1}, fine, 2, "no_repeat_ngram_size: the value is -1"},
      {{.sequence_bias = {{{}, 1}}}, fine, 2, "sequence_bias: a sequence has no tokens"},
      {{.sequence_bias = {{{3}, std::numeric_limits<double>::infinity()}}}, fine, 2, "sequence_bias: the bias is inf"},
      {{.bad_words = {{3}, {}}}, fine, 2, "bad_words: a word has no tokens"},
      {{.repetition_penalty = 0}, fine, 2, "repetition_penalty: the value is 0"},
      {{.num_beams = 0}, fine, 2, "num_beams: the value is 0"},
      {{.num_beams = 2, .num_return_sequences = 3},
       fine,
       2,
       "num_return_sequences: the value is 3, but there are 2 beams"},
      {{.num_return_sequences = 2}, fine, 2, "num_return_sequences: the value is 2, but there are 1 beams"},
      {{.sample = true, .num_beams = 2}, fine, 2, "num_beams: the value is 2 with sample"},
  };
  for (const auto& [options, prompts, code, part] : all) {
    try {
      generate(*model, prompts, options);
      ADD_FAILURE() << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  config.model = {
      .policy = "bert",
      .path = "",
      .config_json =
          R"({"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 8, "vocab_size": 20})"};
  auto bert = build_model(config);
  materialize(*bert, 1);
  EXPECT_THROW(generate(*bert, fine), ConfigError);
}

TEST(Generate, PaddedColumnsAreNeverChosen) {
  GenerationJob job{"greedy", {{5, 17}, {3}}, {.max_new_tokens = 20, .vocabulary = 101}};
  GenerationJob beams = job, drawn = job;
  beams.options.num_beams = 3;
  drawn.options.sample = true;
  drawn.options.temperature = 5;
  for (const Layout& layout : {Layout{}, Layout{.tensor = 3}})
    for (const auto& sequences : generate_in(layout, golden_model("gpt2"), {job, beams, drawn}))
      for (const auto& sequence : sequences)
        for (const auto token : sequence.tokens) EXPECT_LT(token, 101);
}

TEST(Generate, DefaultsOfADirectory) {
  const ScratchFolder scratch;
  scratch.write("config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(generation_defaults(scratch.path()).stop_tokens, std::vector<std::int64_t>{7});
  scratch.write("config.json", R"({"text_config": {"eos_token_id": [5, 6]}})");
  EXPECT_EQ(generation_defaults(scratch.path()).stop_tokens, (std::vector<std::int64_t>{5, 6}));
  scratch.write(
      "generation_config.json",
      R"({"eos_token_id": [3, 4], "do_sample": true, "temperature": 0.6, "top_p": 0.9, "max_length": 40, "early_stopping": "never", "pad_token_id": null})");
  const auto options = generation_defaults(scratch.path());
  EXPECT_EQ(options.stop_tokens, (std::vector<std::int64_t>{3, 4}));
  EXPECT_TRUE(options.sample);
  EXPECT_EQ(options.temperature, 0.6);
  EXPECT_EQ(options.max_length, 40);
  EXPECT_EQ(options.early_stopping, EarlyStopping::kNever);
  scratch.write("generation_config.json", R"({"temperature": "hot"})");
  EXPECT_THROW(generation_defaults(scratch.path()), InputError);
  // Keys that would change the tokens are not ignored. They may
  // have the value that transformers writes when they are off.
  scratch.write("generation_config.json",
                R"({"no_repeat_ngram_size": 0, "typical_p": 1.0, "num_beam_groups": 1, "suppress_tokens": null,
                    "bad_words_ids": [], "renormalize_logits": false, "forced_bos_token_id": null, "use_cache": true})");
  EXPECT_EQ(generation_defaults(scratch.path()).num_beams, 1);
  scratch.write("generation_config.json",
                R"({"no_repeat_ngram_size": 3, "forced_bos_token_id": 0, "forced_eos_token_id": [2, 8], "min_p": 0.1,
                    "typical_p": 0.8, "bad_words_ids": [[7], [5, 6]], "sequence_bias": [[[4], -0.5], [[4, 9], 2]]})");
  const auto limited = generation_defaults(scratch.path());
  EXPECT_EQ(limited.no_repeat_ngram_size, 3);
  EXPECT_EQ(limited.forced_bos_token, 0);
  EXPECT_EQ(limited.forced_eos_tokens, (std::vector<std::int64_t>{2, 8}));
  EXPECT_EQ(limited.bad_words, (std::vector<TokenIds>{{7}, {5, 6}}));
  ASSERT_EQ(limited.sequence_bias.size(), 2U);
  EXPECT_EQ(limited.sequence_bias[1].tokens, (TokenIds{4, 9}));
  EXPECT_EQ(limited.sequence_bias[1].bias, 2);
  EXPECT_EQ(limited.min_p, 0.1);
  EXPECT_EQ(limited.typical_p, 0.8);
  scratch.write("generation_config.json", R"({"forced_bos_token_id": -1, "forced_eos_token_id": -1})");
  EXPECT_FALSE(generation_defaults(scratch.path()).forced_bos_token);
  EXPECT_TRUE(generation_defaults(scratch.path()).forced_eos_tokens.empty());
  for (const char* wrong : {R"({"bad_words_ids": [[7], []]})", R"({"sequence_bias": [[[7], "much"]]})",
                            R"({"sequence_bias": [[[], 1]]})", R"({"sequence_bias": [7]})"}) {
    scratch.write("generation_config.json", wrong);
    EXPECT_THROW(generation_defaults(scratch.path()), InputError) << wrong;
  }
  scratch.write("generation_config.json", R"({"guidance_scale": 2, "diversity_penalty": 0.5})");
  try {
    generation_defaults(scratch.path());
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("the file sets diversity_penalty: 0.5, guidance_scale: 2, which Gantry does not support"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace gantry::testing
