// Directories of sentence-transformers: `gantry forward` has the embeddings of sentences of the reference cases, in
// every layout, and exports keep the modules.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/tensors/libtorch.h"
#include "grid.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

const std::string kSentenceGolden = GANTRY_SOURCE_DIR "/tests/golden/";

// The modes of older and newer files, as in make_sentences.py.
struct SentenceCase {
  std::string folder, pooling;
  bool normalizes = false;
};
const std::vector<SentenceCase> kSentenceCases = {
    {"bert", R"({"word_embedding_dimension": 48, "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true,
                 "pooling_mode_max_tokens": false, "pooling_mode_mean_sqrt_len_tokens": false})",
     true},
    {"families/roberta", R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})"},
    {"families/xlm_roberta", R"({"pooling_mode_max_tokens": true})", true},
    {"families/distilbert", R"({"embedding_dimension": 32, "pooling_mode": "mean_sqrt_len_tokens"})"},
    {"families/nomic_bert", "{}"},
    {"families/modernbert", R"({"pooling_mode_lasttoken": true, "include_prompt": true})", true},
    {"families/electra", R"({"pooling_mode": ["cls", "mean"]})", true},
    {"families/qwen3", R"({"pooling_mode_lasttoken": true})", true},
    {"families/gemma", R"({"pooling_mode": "mean"})"},
    {"families/opt_projected", R"({"pooling_mode": ["cls", "lasttoken"]})"},
    {"families/lfm2", R"({"pooling_mode_max_tokens": true})", true},
    {"families/qwen3_moe", R"({"pooling_mode": "lasttoken"})"}};
const std::vector<std::string> kSentenceLayouts = {
    "--set parallel.tensor=2 --set parallel.sequence_parallel=true",
    "--set parallel.pipeline=2 --set schedule.microbatches=2",
    "--set parallel.context=3 --set parallel.context_method=ring", "--set parallel.data=2",
    "--set parallel.pipeline=2 --set parallel.context=2 --set parallel.tensor=2"};

// A directory as sentence-transformers writes it.
void write_sentence_model(const ScratchFolder& scratch, const SentenceCase& what) {
  fs::create_directories(scratch / "model/1_Pooling");
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(kSentenceGolden + what.folder + "/" + name, scratch / (std::string("model/") + name),
                  fs::copy_options::overwrite_existing);
  json modules = json::parse(R"([
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])");
  if (what.normalizes)
    modules.push_back({{"idx", 2}, {"path", "2_Normalize"}, {"type", "sentence_transformers.models.Normalize"}});
  scratch.write("model/modules.json", modules.dump());
  scratch.write("model/1_Pooling/config.json", what.pooling);
}

std::string forward_command(const ScratchFolder& scratch, const std::string& model, const std::string& sets) {
  return fmt::format(
      "{} forward --model {} --batch {}sentences/inputs.safetensors --output {} --set precision=float64 {}",
      gantry_program(), scratch / model, kSentenceGolden, scratch / "out", sets);
}

TensorDict sentence_outputs(const ScratchFolder& scratch, const std::string& model, const std::string& sets = "") {
  const Outcome run = run_program(forward_command(scratch, model, sets));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return read_safetensors(scratch / "out");
}

double sentence_difference(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  return (a - b).abs().max().item<double>();
}

TEST(Sentences, AreThoseOfTheReferenceInEveryLayout) {
  const TensorDict expected = read_safetensors(kSentenceGolden + "sentences/expected.safetensors");
  for (std::size_t index = 0; index < kSentenceCases.size(); ++index) {
    const ScratchFolder scratch;
    const SentenceCase& what = kSentenceCases[index];
    write_sentence_model(scratch, what);
    const TensorDict one = sentence_outputs(scratch, "model");
    const torch::Tensor& made = one.at("sentence_embedding");
    EXPECT_LT(sentence_difference(made, expected.at(fs::path(what.folder).filename()).to(torch::kFloat64)), 1e-5)
        << what.folder;
    EXPECT_TRUE(one.contains("last_hidden_state")) << what.folder;
    EXPECT_FALSE(one.contains("logits")) << what.folder;
    for (const std::string& layout : turn_of(index, kSentenceLayouts.size(), kSentenceLayouts))
      EXPECT_LT(sentence_difference(sentence_outputs(scratch, "model", layout).at("sentence_embedding"), made), 1e-10)
          << what.folder << " " << layout;
  }
}

TEST(Sentences, AnotherHeadReadsNoModules) {
  const ScratchFolder scratch;
  write_sentence_model(scratch, {"families/roberta", R"({"pooling_mode_weightedmean_tokens": true})"});
  const Outcome refused = run_program(forward_command(scratch, "model", ""));
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("1_Pooling/config.json: Gantry does not support the pooling mode weightedmean; "
                                     "expected cls, max, mean, mean_sqrt_len_tokens, lasttoken; set "
                                     "model.config.architectures to read the model without its sentence embedding"));
  const TensorDict made = sentence_outputs(scratch, "model", "--set model.config.architectures=[RobertaForMaskedLM]");
  EXPECT_TRUE(made.contains("logits"));
  EXPECT_FALSE(made.contains("sentence_embedding"));
}

TEST(Sentences, ExportsKeepTheModules) {
  const ScratchFolder scratch;
  write_sentence_model(scratch, {"families/distilbert", R"({"pooling_mode": "mean"})", true});
  const torch::Tensor expected = sentence_outputs(scratch, "model").at("sentence_embedding");
  for (const std::string& step : {fmt::format("import {} {}", scratch / "model", scratch / "imported"),
                                  fmt::format("export {} {}", scratch / "imported", scratch / "exported")}) {
    const Outcome run = run_program(gantry_program() + " checkpoint " + step, 60);
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }
  for (const char* name : {"modules.json", "1_Pooling/config.json"})
    EXPECT_EQ(read_file(scratch / (std::string("exported/") + name)),
              read_file(scratch / (std::string("model/") + name)));
  const json config = json::parse(read_file(scratch / "exported/config.json"));
  EXPECT_EQ(config["architectures"], json({"DistilBertModel"}));
  EXPECT_FALSE(config.contains("sentence_modules"));
  EXPECT_LT(sentence_difference(sentence_outputs(scratch, "exported").at("sentence_embedding"), expected), 1e-12);
}

// A decoder has no head then, even if its files have one.
TEST(Sentences, ExportsOfDecodersHaveNoHead) {
  const ScratchFolder scratch;
  write_sentence_model(scratch, {"families/qwen3", R"({"pooling_mode": "lasttoken"})"});
  const torch::Tensor expected = sentence_outputs(scratch, "model").at("sentence_embedding");
  for (const std::string& step : {fmt::format("import {} {}", scratch / "model", scratch / "imported"),
                                  fmt::format("export {} {}", scratch / "imported", scratch / "exported")}) {
    const Outcome run = run_program(gantry_program() + " checkpoint " + step, 60);
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }
  EXPECT_EQ(json::parse(read_file(scratch / "exported/config.json"))["architectures"], json({"Qwen3Model"}));
  const TensorDict tensors = read_safetensors(scratch / "exported/model.safetensors");
  EXPECT_TRUE(tensors.contains("model.embed_tokens.weight"));
  EXPECT_FALSE(tensors.contains("lm_head.weight"));
  EXPECT_LT(sentence_difference(sentence_outputs(scratch, "exported").at("sentence_embedding"), expected), 1e-12);
  const Outcome refused =
      run_program(fmt::format("{} generate --model {} --tokens 1,2", gantry_program(), scratch / "model"), 60);
  EXPECT_EQ(refused.exit_code, 3) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("its model cannot generate text"));
}

// The losses and gradients of multiple negatives ranking. Replicas compare their texts with those of all others.
void expect_ranked(const SentenceCase& what, std::int64_t features, const std::string& results) {
  const ScratchFolder scratch;
  write_sentence_model(scratch, what);
  const TensorDict expected = read_safetensors(kSentenceGolden + "sentences/" + results);
  for (const std::string layout : {"", "--set parallel.data=2 --set parallel.tensor=2"}) {
    const Outcome run = run_program(fmt::format(
        "{} forward --model {} --batch {}sentences/groups.safetensors --output {} --grads {} --set precision=float64 "
        "--set model.config.sentence_pairs=true {}",
        gantry_program(), scratch / "model", kSentenceGolden, scratch / "out", scratch / "grads", layout));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const TensorDict made = read_safetensors(scratch / "out"), gradients = read_safetensors(scratch / "grads");
    EXPECT_EQ(made.at("sentence_embedding").sizes(), (std::vector<std::int64_t>{4, 3, features}));
    for (const auto& [name, tensor] : expected)
      EXPECT_LT(sentence_difference((name == "losses" ? made : gradients).at(name), tensor.to(torch::kFloat64)), 1e-5)
          << name << layout;
    EXPECT_NEAR(made.at("loss").item<double>(), expected.at("losses").mean().item<double>(), 1e-5);
  }
}

TEST(Sentences, GroupsOfTextsAreRankedAsByTheReference) {
  expect_ranked({"families/distilbert", R"({"pooling_mode": "mean"})"}, 32, "group_results.safetensors");
  expect_ranked({"llama", R"({"pooling_mode": "lasttoken"})"}, 48, "group_results_decoder.safetensors");
}

std::vector<double> losses_of_run(const std::string& directory) {
  std::vector<double> losses;
  std::istringstream metrics(read_file(directory + "/metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);)
    if (const json entry = json::parse(line); entry.contains("loss")) losses.push_back(entry["loss"]);
  return losses;
}

TEST(Sentences, AreTrainedOnGroupsOfTexts) {
  const ScratchFolder scratch;
  write_sentence_model(scratch, {"bert", R"({"pooling_mode": "mean"})"});
  const std::string groups = kSentenceGolden + "sentences/groups.safetensors";
  const std::string config = scratch.write(
      "run.yaml", fmt::format("model: {{path: {0}, config: {{sentence_pairs: true}}}}\nprecision: float64\n"
                              "data: {{format: tensors, path: {1}, sequence_length: 7, batch_size: 4}}\n"
                              "evaluation: {{path: {1}}}\noptimizer: {{lr: 0.001}}\ntrain: {{steps: 8}}\n"
                              "comm: {{threads_per_rank: 1}}\ncheckpoint: {{path: {2}}}\noutput: {3}\n",
                              scratch / "model", groups, scratch / "c", scratch / "run"));
  const std::string train = gantry_program() + " train " + config;
  const Outcome refused = run_program(train + " --set parallel.pipeline=2", 60);
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("parallel.pipeline: the value is 2, but the loss of the model compares all"));
  const Outcome untrained = run_program(train + " --set model.config.sentence_pairs=false", 60);
  EXPECT_EQ(untrained.exit_code, 3);
  EXPECT_THAT(untrained.err, HasSubstr("no loss to train it with; expected a head, or groups of texts"));
  ASSERT_EQ(run_program(train + " --set parallel.data=2", 60).exit_code, 0);
  const std::vector<double> losses = losses_of_run(scratch / "run");
  ASSERT_EQ(losses.size(), 8u);
  EXPECT_LT(losses.back(), losses.front());
  run_program(fmt::format("{} checkpoint export {} {}", gantry_program(), scratch / "c", scratch / "exported"), 60);
  EXPECT_FALSE(json::parse(read_file(scratch / "exported/config.json")).contains("sentence_pairs"));
  EXPECT_EQ(sentence_outputs(scratch, "exported").at("sentence_embedding").size(0), 4);
}

// The tokens and masks of lines are those of the same texts as tensors.
TEST(Sentences, AreTrainedOnLinesOfTexts) {
  const ScratchFolder scratch;
  write_sentence_model(scratch, {"cross_encoder", R"({"pooling_mode": "mean"})"});
  const std::string lines =
      scratch.write("pairs.jsonl", R"({"anchor": "hello dogs", "positive": "the cat", "negative": "the"}
{"anchor": "the dogs", "positive": "the dogs and", "negative": "cat"}
{"anchor": "cat", "positive": "hello the cat", "negative": "dogs"}
{"anchor": "and", "positive": "and the", "negative": "hello hello"}
)");
  const std::string config = scratch.write(
      "run.yaml",
      fmt::format("model: {{path: {0}, config: {{sentence_pairs: true}}}}\nprecision: float64\n"
                  "data: {{format: jsonl, path: {1}, tokenizer: {2}word_piece/vocab.txt, sequence_length: 8, "
                  "batch_size: 4}}\nevaluation: {{path: {1}}}\noptimizer: {{lr: 0.01}}\ntrain: {{steps: 12}}\n"
                  "comm: {{threads_per_rank: 1}}\ncheckpoint: {{path: {3}}}\noutput: {4}\n",
                  scratch / "model", lines, kSentenceGolden, scratch / "c", scratch / "run"));
  const Outcome run = run_program(gantry_program() + " train " + config + " --set parallel.data=2", 60);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("4 groups of 3 texts"));
  const std::vector<double> losses = losses_of_run(scratch / "run");
  ASSERT_EQ(losses.size(), 12u);
  EXPECT_LT(losses.back(), 0.9 * losses.front());
  const Outcome masked = run_program(gantry_program() + " train " + config + " --set data.objective=mlm", 60);
  EXPECT_EQ(masked.exit_code, 3);
  EXPECT_THAT(masked.err, HasSubstr("data.objective: mlm does not fit jsonl data"));
}

TEST(Sentences, ModelsShowTheHeadThatIsBuilt) {
  const ScratchFolder scratch;
  write_sentence_model(scratch, kSentenceCases[0]);
  const Outcome run = run_program(gantry_program() + " models " + (scratch / "model"));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("head: none; BertModel with the sentence embedding of modules.json"));
  write_sentence_model(scratch, {"families/qwen3", "{}"});
  const Outcome decoder = run_program(gantry_program() + " models " + (scratch / "model"));
  EXPECT_THAT(decoder.out, HasSubstr("head: none; Qwen3Model with the sentence embedding of modules.json"));
}

}  // namespace
}  // namespace gantry::testing
