// Every family in every precision: masks, padding, recomputation, dropout, ties, layouts, and generation from
// prompts of unequal lengths. Compared with one rank in the same precision, and with float64.
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <mutex>

#include "gantry/booster/recipe.h"
#include "gantry/generation/generate.h"
#include "gantry/launch/launch.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

// Tolerances: between two layouts in one precision, and between this precision
// and float64. They are relative for losses and norms. For gradients they apply
// to the norm of the difference, and for scores to fractions of their range.
struct Precision {
  const char* name;
  double loss, gradients, from_float64, scores;
};
constexpr Precision kPrecisions[] = {{"float64", 1e-10, 1e-10, 1e-10, 1e-9},
                                     {"float32", 1e-5, 1e-4, 1e-5, 1e-4},
                                     {"float16", 2e-3, 2e-2, 3e-3, 5e-3},
                                     {"bfloat16", 1e-2, 1e-1, 2e-2, 3e-2}};

double distance(const TensorDict& expected, const TensorDict& actual) {
  double difference = 0, size = 0;
  for (const auto& [name, tensor] : expected) {
    const torch::Tensor reference = tensor.to(torch::kFloat64);
    difference += (actual.at(name).to(torch::kFloat64) - reference).square().sum().item<double>();
    size += reference.square().sum().item<double>();
  }
  return std::sqrt(difference / size);
}

void expect_near(const CaseResult& expected, const CaseResult& actual, const Precision& precision,
                 const std::string& label) {
  ASSERT_EQ(expected.losses.size(), actual.losses.size()) << label;
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], precision.loss * expected.losses[step]) << label;
    EXPECT_NEAR(actual.norms[step], expected.norms[step], precision.gradients * expected.norms[step]) << label;
  }
  EXPECT_LE(distance(expected.gradients, actual.gradients), precision.gradients) << label;
}

void check_training(ModelCase what) {
  const double exact = [&] {
    what.precision = "float64";
    return run_case(what, {}).losses.front();
  }();
  for (const Precision& precision : kPrecisions) {
    what.precision = precision.name;
    const std::string label =
        what.family + " " + precision.name + (what.tied ? " tied" : "") + (what.dropout > 0 ? " dropout " : " ");
    const CaseResult one = run_case(what, {});
    ASSERT_EQ(one.losses.size(), what.batches.size()) << label;
    EXPECT_NEAR(one.losses.front(), exact, precision.from_float64 * exact) << label;
    for (const char* recompute : {"selective", "full"})
      expect_identical(one, run_case(what, {.recompute = recompute}), label + recompute);
    const Parallelism split{
        .layout = {.pipeline = 2, .tensor = 2}, .microbatches = 2, .sequence_parallel = true, .recompute = "full"};
    expect_near(one, run_case(what, split), precision, label + describe(split));
  }
}

// With T5's default initializer_factor of 1, gradients exceed float16's range once the loss is scaled. gelu
// has no kink: the gradient of relu near 0 depends on the rounding of its input.
constexpr const char* kSmallT5 = R"({"initializer_factor": 0.3, "feed_forward_proj": "gelu"})";

class PrecisionTable : public ::testing::TestWithParam<std::tuple<const char*, bool, double>> {};

TEST_P(PrecisionTable, MasksRecomputationDropoutAndTies) {
  const auto& [family, tied, dropout] = GetParam();
  check_training({.family = family,
                  .layers = 2,
                  .heads = 4,
                  .key_heads = 2,
                  .vocabulary = 53,
                  .tied = tied,
                  .dropout = dropout,
                  .batches = {6, 5},
                  .optimizer = "sgd",
                  .lr = 0.1,
                  .padded = true,
                  .keys = std::string(family) == "t5" ? kSmallT5 : "{}"});
}

INSTANTIATE_TEST_SUITE_P(All, PrecisionTable,
                         ::testing::Combine(::testing::Values("gpt2", "llama", "bert", "roberta", "t5", "vit",
                                                              "whisper"),
                                            ::testing::Bool(), ::testing::Values(0.0, 0.1)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + (std::get<1>(info.param) ? "Tied" : "Untied") +
                                  (std::get<2>(info.param) > 0 ? "WithDropout" : "");
                         });

// All heads of an encoder, and the axes that the table above does not cover.
TEST(EncodersInLowPrecision, HeadsAndAxes) {
  std::vector<ModelCase> cases;
  for (const char* family : {"t5", "vit", "whisper", "modernbert", "bart"}) cases.push_back({.family = family});
  for (const char* head : {"ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
                           "ForMultipleChoice"})
    cases.push_back({.family = "bert", .head = head});
  for (ModelCase& what : cases) {
    what.layers = 2;
    what.vocabulary = 53;
    what.batches = {6, 5};
    what.optimizer = "sgd";
    what.lr = 0.1;
    if (what.family == "t5") what.keys = kSmallT5;
    const int context = what.head == "ForMultipleChoice" ? 1 : 2;  // its samples have several sequences
    for (const Precision& precision : {kPrecisions[2], kPrecisions[3]}) {
      what.precision = precision.name;
      const CaseResult one = run_case(what, {});
      for (const Parallelism& how : std::vector<Parallelism>{
               {.layout = {.data = 2, .context = context}, .microbatches = 2, .zero = 1},
               {.layout = {.pipeline = 2, .data = 2}, .schedule = "zb_h1", .microbatches = 2, .zero = 2}})
        expect_near(one, run_case(what, how), precision,
                    what.family + " " + what.head + " " + precision.name + " " + describe(how));
    }
  }
}

const std::map<std::string, const char*> kTextKeys = {
    {"gpt2",
     R"({"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 50, "n_positions": 32, "initializer_range": 0.5})"},
    {"llama", R"({"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 16,
                  "intermediate_size": 24, "vocab_size": 50, "max_position_embeddings": 32, "initializer_range": 0.5})"},
    {"t5", R"({"num_layers": 1, "num_decoder_layers": 1, "num_heads": 4, "d_model": 16, "d_kv": 4, "d_ff": 24,
               "vocab_size": 50})"},
    {"whisper",
     R"({"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                    "d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "num_mel_bins": 4, "vocab_size": 50,
                    "max_source_positions": 6, "max_target_positions": 32, "init_std": 0.5,
                    "decoder_start_token_id": 1, "pad_token_id": 0})"}};

Config text_config(const std::string& family, const std::string& precision) {
  Config config = layout_config({});
  config.precision = precision;
  config.model.policy = family;
  config.model.config_json = kTextKeys.at(family);
  config.train.seed = 3;
  config.comm.threads_per_rank = 1;
  return config;
}

std::shared_ptr<torch::nn::Module> one_device(const Config& config) {
  auto model = build_model(config);
  materialize(*model, config.train.seed);
  model->eval();
  return model;
}

// The model's input for one sequence with its generated
// tokens, and the number of tokens before the generated ones.
using WholeText = std::function<std::pair<TensorDict, std::int64_t>(const GeneratedSequence&)>;

torch::Tensor row_of_ids(TokenIds tokens, const TokenIds& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return torch::tensor(tokens, torch::kInt64).unsqueeze(0);
}

WholeText whole_text(const std::string& family, const std::vector<TokenIds>& prompts, const TensorDict& sounds) {
  return [=](const GeneratedSequence& sequence) -> std::pair<TensorDict, std::int64_t> {
    if (family == "whisper")
      return {{{"input_features", sounds.at("input_features").narrow(0, sequence.prompt, 1)},
               {"decoder_input_ids", row_of_ids({1}, sequence.tokens)}},
              1};
    const TokenIds& prompt = prompts[sequence.prompt];
    if (family == "t5")
      return {{{"input_ids", row_of_ids(prompt, {})}, {"decoder_input_ids", row_of_ids({0}, sequence.tokens)}}, 1};
    return {{{"input_ids", row_of_ids(prompt, sequence.tokens)}}, static_cast<std::int64_t>(prompt.size())};
  };
}

// The largest gap in float64 between the best score and the
// score of the chosen token, as a fraction of the scores' range.
double worst_choice(torch::nn::Module& exact, const WholeText& text, const std::vector<GeneratedSequence>& sequences) {
  const torch::NoGradGuard no_grad;
  const StageModule stage(exact.shared_from_this(), policy_for(exact), {{0, 2}});
  double worst = 0;
  for (const auto& sequence : sequences) {
    const auto [batch, given] = text(sequence);
    const torch::Tensor logits = stage.forward(0, batch, {.batch = batch}).at("logits")[0];
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(sequence.tokens.size()); ++i) {
      const torch::Tensor row = logits[given + i - 1];
      const double best = row.max().item<double>(), range = best - row.min().item<double>();
      worst = std::max(worst, (best - row[sequence.tokens[i]].item<double>()) / range);
    }
  }
  return worst;
}

class GenerationTable : public ::testing::TestWithParam<std::tuple<const char*, Precision>> {};

TEST_P(GenerationTable, UnequalPromptsInEveryLayout) {
  const auto& [family, precision] = GetParam();
  std::vector<TokenIds> prompts = {{5, 17, 42, 8, 9}, {7}, {10, 3, 46, 23, 11, 20, 9}, {13, 2}};
  TensorDict sounds;
  if (std::string(family) == "whisper") {  // its sequences begin with the start token alone
    sounds.set("input_features", torch::sin(torch::arange(4 * 4 * 12, torch::kFloat64)).view({4, 4, 12}));
    prompts.clear();
  }
  const WholeText text = whole_text(family, prompts, sounds);
  Config config = text_config(family, precision.name);
  const auto model = one_device(config);
  const auto exact = one_device(text_config(family, "float64"));
  {
    const torch::NoGradGuard no_grad;
    auto values = exact->parameters();
    const auto rounded = model->parameters();
    for (std::size_t i = 0; i < values.size(); ++i) values[i].copy_(rounded[i]);
  }
  for (const bool use_cache : {true, false}) {
    const GenerationOptions options{.max_new_tokens = 10, .encoder = sounds, .use_cache = use_cache};
    EXPECT_LE(worst_choice(*exact, text, generate(*model, prompts, options)), precision.scores) << use_cache;
    for (const Layout& layout : {Layout{.tensor = 2}, Layout{.pipeline = 2, .tensor = 2}}) {
      const Config sizes = layout_config(layout);
      config.parallel = sizes.parallel;
      std::mutex lock;
      std::vector<GeneratedSequence> sequences;
      const int code = launch(config, [&](World& world) {
        auto* plugin = new HybridParallelPlugin(world, config);
        Booster booster{std::unique_ptr<Plugin>(plugin)};
        auto boosted = booster.boost(build_model(config), nullptr, cross_entropy());
        auto mine = generate(boosted, *plugin, prompts, options);
        const std::lock_guard guard(lock);
        sequences = std::move(mine);
      });
      ASSERT_EQ(code, 0);
      ASSERT_EQ(sequences.size(), 4u);
      EXPECT_LE(worst_choice(*exact, text, sequences), precision.scores) << use_cache;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GenerationTable,
                         ::testing::Combine(::testing::Values("gpt2", "llama", "t5", "whisper"),
                                            ::testing::ValuesIn(kPrecisions)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace gantry::testing
