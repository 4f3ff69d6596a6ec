// `gantry generate`: every form of a model, text and tokens, launchers, and errors.
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/booster/parallelized_model.h"
#include "gantry/core/base/utf8.h"
#include "gantry/launch/launch.h"
#include "generation_case.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

Outcome run_generate(const std::string& arguments) { return run_program(gantry_program() + " generate " + arguments); }

std::vector<nlohmann::json> json_lines(const Outcome& run) {
  EXPECT_EQ(run.exit_code, 0) << run.err;
  std::vector<nlohmann::json> lines;
  std::istringstream text(run.out);
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::vector<TokenIds> tokens_in(const Outcome& run) {
  std::vector<TokenIds> tokens;
  for (const auto& line : json_lines(run)) tokens.push_back(line.at("tokens").get<TokenIds>());
  return tokens;
}

// The flags of a reference case.
std::string flags_of(const GenerationJob& job) {
  std::ostringstream flags;
  for (const auto& prompt : job.prompts) {
    flags << " --tokens ";
    for (std::size_t i = 0; i < prompt.size(); ++i) flags << (i ? "," : "") << prompt[i];
  }
  const auto& options = job.options;
  if (options.max_new_tokens) flags << " --max-new-tokens " << *options.max_new_tokens;
  if (options.num_beams > 1)
    flags << " --num-beams " << options.num_beams << " --num-return-sequences " << options.num_return_sequences;
  for (const auto stop : options.stop_tokens) flags << " --stop " << stop;
  return flags.str();
}

// The reference cases have no stop token but their own; the directory names one, which `stop` takes the place of.
ReferenceCases cases_with_stop(const ScratchFolder& scratch, const nlohmann::json& stop) {
  ReferenceCases cases = read_reference_cases("gpt2");
  fs::copy(cases.folder, scratch / "model", fs::copy_options::recursive);
  cases.folder = scratch / "model";
  fs::remove(cases.folder + "/generation_config.json");
  auto config = nlohmann::json::parse(read_file(cases.folder + "/config.json"));
  config["eos_token_id"] = stop;
  scratch.write("model/config.json", config.dump());
  return cases;
}

ReferenceCases cases_without_defaults(const ScratchFolder& scratch) { return cases_with_stop(scratch, nullptr); }

constexpr std::size_t kGreedy = 0, kBeams = 7, kStopped = 8;  // among the cases

TEST(GenerateCommand, WhatAnEncoderReadsIsNoPartOfTheText) {
  const std::string asked = "--model " + golden_model("families/t5") +
                            " --tokens 41,47,51,39 --tokens 7,9 --max-new-tokens 3 --set parallel.pipeline=2";
  const auto tokens = tokens_in(run_generate("--json " + asked));
  ASSERT_EQ(tokens.size(), 2u);
  std::string expected;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ASSERT_EQ(tokens[i].size(), 3u);
    expected += fmt::format("--- prompt {}, sequence 1\n{},{},{}\n", i + 1, tokens[i][0], tokens[i][1], tokens[i][2]);
  }
  EXPECT_EQ(run_generate(asked).out, expected);
}

// T5's tokenizer ends each text with </s>, which is 1.
TEST(GenerateCommand, APromptHasTheSpecialTokensOfItsTokenizer) {
  const std::string asked = "--model " + golden_model("families/t5") + " --max-new-tokens 3 --json --tokenizer " +
                            std::string(GANTRY_SOURCE_DIR) + "/tests/golden/tokenizers/kinds/t5 ";
  const auto lines_of = [&](const std::string& prompt) {
    auto lines = json_lines(run_generate(asked + prompt));
    for (auto& line : lines) line.erase("text");
    return lines;
  };
  const auto given = lines_of("--tokens 17,57,4,1");
  ASSERT_EQ(given.size(), 1u);
  EXPECT_EQ(given[0]["prompt_tokens"], (TokenIds{17, 57, 4, 1}));
  EXPECT_EQ(lines_of("--prompt 'the dogs'"), given);
  EXPECT_EQ(lines_of("--prompt 'the dogs</s>'"), given);
}

// A row of sound for each text, which begins with the start token, or with tokens that are given.
TEST(GenerateCommand, SoundBecomesText) {
  const std::string folder = golden_model("families/whisper"), model = "--model " + folder;
  const std::string asked = model + " --features " + folder + "/inputs.safetensors --max-new-tokens 12 --json";
  const auto expected = nlohmann::json::parse(read_file(folder + "/generate.json"))["tokens"];
  EXPECT_EQ(nlohmann::json(tokens_in(run_generate(asked + " --set parallel.pipeline=3"))), expected);
  EXPECT_EQ(nlohmann::json(tokens_in(run_generate(asked + " --tokens 2 --set parallel.tensor=2"))), expected);
  const std::pair<std::string, std::string> faults[] = {
      {model + " --tokens 1", "a whisper model reads speech; expected --features FILE"},
      {"--model " + golden_model("families/t5") + " --features " + folder + "/inputs.safetensors",
       "a t5 model does not read speech; expected a whisper model"},
      {asked + " --tokens 2 --tokens 2", "but the number of prompts is 2; expected a row for each prompt"}};
  for (const auto& [arguments, said] : faults) {
    const Outcome run = run_generate(arguments);
    EXPECT_NE(run.exit_code, 0);
    EXPECT_NE(run.err.find(said), std::string::npos) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

// A language that is detected or named, and when each part was said: whisper_speech.json has transformers' tokens.
TEST(GenerateCommand, SpeechHasLanguagesAndTimes) {
  const ScratchFolder scratch;
  fs::copy(golden_model("families/whisper"), scratch / "model", fs::copy_options::recursive);
  const auto cases = nlohmann::json::parse(read_file(golden_model("generation/whisper_speech.json")));
  const std::string asked =
      "--model " + (scratch / "model") + " --features " + (scratch / "model/inputs.safetensors") + " ";
  scratch.write("model/generation_config.json", cases[1]["keys"].dump());
  const auto lines = json_lines(run_generate(asked + "--json --set parallel.pipeline=2"));
  ASSERT_EQ(lines.size(), cases[1]["tokens"].size());
  std::size_t spoken = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["tokens"], cases[1]["tokens"][i]);
    EXPECT_EQ(cases[1]["keys"]["lang_to_id"][lines[i]["language"].get<std::string>()], cases[1]["begin"][i][1]);
    for (const auto& segment : lines[i]["segments"]) {
      EXPECT_TRUE(segment["end"].is_null() || segment["end"] >= segment["start"]);
      spoken += segment["tokens"].size();
    }
  }
  EXPECT_GT(spoken, 0u);
  // By flags, over a file that says neither.
  nlohmann::json keys = cases[2]["keys"];
  for (const char* key : {"language", "task", "return_timestamps"}) keys.erase(key);
  scratch.write("model/generation_config.json", keys.dump());
  const std::string flags = asked + "--language fr --task translate --timestamps";
  EXPECT_EQ(nlohmann::json(tokens_in(run_generate(flags + " --json"))), cases[2]["tokens"]);
  const Outcome plain = run_generate(flags);
  EXPECT_EQ(plain.out.rfind("--- prompt 1, sequence 1\n[", 0), 0u) << plain.out;
  const std::pair<std::string, std::string> faults[] = {{asked + "--language xx", "'<|xx|>' is not in lang_to_id"},
                                                        {"--model " + golden_model("gpt2") + " --tokens 1 --timestamps",
                                                         "--timestamps: the flag has no effect without --features"},
                                                        {asked + "--language fr --tokens 2", "--language"}};
  for (const auto& [arguments, said] : faults) {
    const Outcome run = run_generate(arguments);
    EXPECT_NE(run.exit_code, 0);
    EXPECT_NE(run.err.find(said), std::string::npos) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

TEST(GenerateCommand, HuggingFaceDirectoriesInAnyLayout) {
  const ScratchFolder scratch;
  const ReferenceCases cases = cases_without_defaults(scratch);
  for (const char* layout : {"", " --set parallel.tensor=3", " --set parallel.pipeline=2 --set parallel.tensor=2"})
    for (const std::size_t i : {kGreedy, kBeams, kStopped})
      EXPECT_EQ(tokens_in(run_generate("--json --model " + cases.folder + flags_of(cases.jobs[i]) + layout)),
                cases.tokens[i])
          << cases.jobs[i].name << layout;
  EXPECT_EQ(
      tokens_in(run_program(std::string(GANTRY_MPIRUN) + " -n 2 " + gantry_program() + " generate --json --model " +
                            cases.folder + flags_of(cases.jobs[kBeams]) + " --set parallel.tensor=2")),
      cases.tokens[kBeams]);
}

TEST(GenerateCommand, CheckpointsOfAnyLayout) {
  const ScratchFolder scratch;
  const ReferenceCases cases = cases_without_defaults(scratch);
  ASSERT_EQ(run_program(gantry_program() + " checkpoint import " + cases.folder + " " + (scratch / "saved") +
                        " --set parallel.tensor=2 --set parallel.pipeline=2")
                .exit_code,
            0);
  for (const std::string& model : {scratch / "saved", scratch / "saved/step-000000"})
    EXPECT_EQ(
        tokens_in(run_generate("--json --model " + model + flags_of(cases.jobs[kBeams]) + " --set parallel.tensor=3")),
        cases.tokens[kBeams]);
}

TEST(GenerateCommand, ACheckpointKeepsItsModelsStopToken) {
  const ScratchFolder scratch;
  const TokenIds full = read_reference_cases("gpt2").tokens[kGreedy].front();
  const ReferenceCases cases = cases_with_stop(scratch, full.at(2));
  ASSERT_EQ(run_program(gantry_program() + " checkpoint import " + cases.folder + " " + (scratch / "saved")).exit_code,
            0);
  for (const std::string& model : {cases.folder, scratch / "saved"}) {
    const auto lines = json_lines(run_generate("--json --model " + model + flags_of(cases.jobs[kGreedy])));
    ASSERT_FALSE(lines.empty()) << model;
    const TokenIds tokens = lines.front().at("tokens").get<TokenIds>();
    EXPECT_EQ(tokens, TokenIds(full.begin(), std::find(full.begin(), full.end(), full.at(2)) + 1)) << model;
    EXPECT_TRUE(lines.front().at("stopped").get<bool>()) << model;
  }
}

TEST(GenerateCommand, DirectoriesOfSaveParallelized) {
  const ScratchFolder scratch;
  const ReferenceCases cases = cases_without_defaults(scratch);
  Config config = layout_config({.tensor = 2});
  config.model.path = cases.folder;
  config = resolve_model(std::move(config));
  ASSERT_EQ(launch(config,
                   [&](World& world) {
                     auto* plugin = new HybridParallelPlugin(world, config);
                     Booster booster{std::unique_ptr<Plugin>(plugin)};
                     auto boosted = booster.boost(build_model(config));
                     load_weights(config, boosted, plugin->mesh());
                     save_parallelized(scratch / "parts", boosted, *plugin, config);
                   }),
            0);
  EXPECT_EQ(tokens_in(run_generate("--json --model " + (scratch / "parts") + flags_of(cases.jobs[kBeams]) +
                                   " --set parallel.pipeline=2")),
            cases.tokens[kBeams]);
}

// A GPT-2 with the files of a tokenizer, trained for a single step.
std::string model_with_tokenizer(const ScratchFolder& scratch) {
  const std::string tokenizer = golden_model("tokenizers/gpt2");
  const std::string config = scratch.write(
      "train.yaml",
      "model: {policy: gpt2, config: {n_embd: 24, n_layer: 2, n_head: 3, n_positions: 64, vocab_size: 1000}}\n"
      "data: {format: text, path: \"" +
          scratch.write("text.txt", std::string(400, 'a')) +
          "\", tokenizer: bytes, sequence_length: 16, batch_size: 2}\ntrain: {steps: 1}\ncheckpoint: {path: \"" +
          (scratch / "saved") + "\"}\n");
  EXPECT_EQ(run_program(gantry_program() + " train " + config).exit_code, 0);
  EXPECT_EQ(
      run_program(gantry_program() + " checkpoint export " + (scratch / "saved") + " " + (scratch / "gpt2")).exit_code,
      0);
  for (const char* file : {"vocab.json", "merges.txt"}) fs::copy(tokenizer + "/" + file, scratch / "gpt2/" + file);
  return scratch / "gpt2";
}

// The example of OSLO with GPT-2: three beams over tensor-parallel ranks.
TEST(GenerateCommand, TextWithBeamsOverTensorParallelRanks) {
  const ScratchFolder scratch;
  const std::string model = model_with_tokenizer(scratch);
  const std::string call = "--model " + model + " --prompt \"the other\" --num-beams 3 --max-new-tokens 12";
  const Outcome one = run_generate(call), two = run_generate(call + " --set parallel.tensor=2");
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(two.out, one.out);
  EXPECT_TRUE(two.out.starts_with("the other")) << two.out;
  const auto lines = json_lines(run_generate(call + " --json --num-return-sequences 2"));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["prompt"], 1);
  EXPECT_EQ(lines[1]["sequence"], 2);
  EXPECT_GE(lines[0]["score"].get<double>(), lines[1]["score"].get<double>());
  EXPECT_EQ("the other" + lines[0]["text"].get<std::string>() + "\n", one.out);
}

// Text for a model that has a tokenizer is that tokenizer's tokens: the same run as from the token files of the text.
TEST(TrainCommand, TextIsReadByTheModelsTokenizer) {
  const ScratchFolder scratch;
  const std::string model = model_with_tokenizer(scratch);
  std::string words;
  for (int i = 0; i < 40; ++i) words += "The quick brown fox sees the other dogs. ";
  const std::string text = scratch.write("words.txt", words), prefix = scratch / "words";
  ASSERT_EQ(
      run_program(fmt::format("{} data build --tokenizer {} --output {} {}", gantry_program(), model, prefix, text))
          .exit_code,
      0);
  const auto losses = [&](const std::string& data, const std::string& name, const std::string& flags = "") {
    const std::string config = scratch.write(
        name + ".yaml", fmt::format("model: {{path: \"{}\"}}\ndata: {{{}, sequence_length: 12, batch_size: 4}}\n"
                                    "train: {{steps: 3}}\noutput: \"{}\"\n",
                                    model, data, scratch / name));
    const Outcome run = run_program(gantry_program() + " train " + config + flags);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    std::vector<double> all;
    std::istringstream lines(testing::read_file(scratch / name + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line)["loss"]);
    return std::pair(all, run.out);
  };
  const auto by_text = losses("format: text, path: \"" + text + "\"", "text", " --sample \"the quick\"");
  const auto by_tokens = losses("format: megatron, path: \"" + prefix + "\"", "tokens", " --sample \"the quick\"");
  const auto by_bytes = losses("format: text, tokenizer: bytes, path: \"" + text + "\"", "bytes");
  EXPECT_EQ(by_text.first.size(), 3u);
  EXPECT_EQ(by_text.first, by_tokens.first);
  EXPECT_NE(by_text.first, by_bytes.first);
  // The sample is text of the tokenizer's.
  EXPECT_NE(by_text.second.find("sample (greedy):\nthe quick"), std::string::npos) << by_text.second;
  EXPECT_NE(by_tokens.second.find("sample (greedy):\nthe quick"), std::string::npos) << by_tokens.second;
}

TEST(TrainCommand, TextWithoutATokenizerIsRefused) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("text.txt", std::string(400, 'a'));
  const auto train = [&](const std::string& data, const std::string& flags = "") {
    const std::string config = scratch.write(
        "train.yaml",
        "model: {policy: gpt2, config: {n_embd: 24, n_layer: 2, n_head: 3, n_positions: 64, vocab_size: 1000}}\n"
        "data: {" +
            data + ", sequence_length: 16, batch_size: 2}\ntrain: {steps: 1}\n");
    return run_program(gantry_program() + " train " + config + flags);
  };
  const Outcome refused = train("format: text, path: \"" + text + "\"");
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(
      refused.err.find("data.tokenizer: no tokenizer is set, but the model's vocabulary of 1000 is not the 256 bytes"),
      std::string::npos)
      << refused.err;
  EXPECT_EQ(train("format: text, tokenizer: bytes, path: \"" + text + "\"").exit_code, 0);
  // A missing tokenizer for --sample is reported before the run.
  const Outcome sample = train("format: tokens, path: \"" + text + "\"", " --sample a");
  EXPECT_EQ(sample.exit_code, 2);
  EXPECT_NE(sample.err.find("--sample: data.tokenizer: no tokenizer is set"), std::string::npos) << sample.err;
}

TEST(GenerateCommand, ADirectoryMaySampleByDefault) {
  const ScratchFolder scratch;
  const ReferenceCases cases = cases_without_defaults(scratch);
  const std::string plain = "--model " + cases.folder + " --tokens 1,2,3 --max-new-tokens 12 --json";
  const auto greedy = tokens_in(run_generate(plain));
  const auto drawn = tokens_in(run_generate(plain + " --sample --temperature 5"));
  EXPECT_NE(greedy, drawn);
  scratch.write("model/generation_config.json", R"({"do_sample": true, "temperature": 5.0})");
  EXPECT_EQ(tokens_in(run_generate(plain)), drawn);
  EXPECT_EQ(tokens_in(run_generate(plain + " --seed 1")), drawn);
  EXPECT_EQ(tokens_in(run_generate(plain + " --no-sample")), greedy);
}

TEST(GenerateCommand, StreamsWholeCharactersOfBytes) {
  const ScratchFolder scratch;
  const std::string config = scratch.write(
      "train.yaml",
      "model: {policy: gpt2, config: {n_embd: 24, n_layer: 2, n_head: 3, n_positions: 64, vocab_size: 256}}\n"
      "data: {format: text, path: \"" +
          scratch.write("text.txt", "äöü äöü äöü äöü äöü äöü äöü äöü äöü äöü") +
          "\", sequence_length: 16, batch_size: 2}\noptimizer: {lr: 0.02}\ntrain: {steps: 30}\ncheckpoint: {path: \"" +
          (scratch / "saved") + "\"}\n");
  const Outcome trained = run_program(gantry_program() + " train " + config + " --sample aa");
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.out.find("sample (greedy):\naa"), std::string::npos) << trained.out;
  for (const char* more : {"", " --sample --top-k 0 --temperature 20 --seed 5"}) {
    const Outcome run = run_generate("--model " + (scratch / "saved") + " --prompt \"äö\" --max-new-tokens 30" + more +
                                     " --set parallel.pipeline=2");
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_TRUE(run.out.starts_with("äö")) << run.out;
    EXPECT_TRUE(run.out.ends_with("\n"));
    EXPECT_EQ(valid_utf8(run.out), run.out);
  }
}

TEST(GenerateCommand, SaysWhatIsWrong) {
  const std::string gpt2 = "--model " + golden_model("gpt2");
  const std::tuple<std::string, int, std::string> wrong[] = {
      {gpt2, 2, "there is no prompt"},
      {"--tokens 1", 2, "--model is required"},
      {gpt2 + " --prompt a", 4, "has no tokenizer"},
      {gpt2 + " --tokens 1,x", 2, "'1,x' is not a list of tokens"},
      {gpt2 + " --tokens ''", 2, "is not a list of tokens"},
      {gpt2 + " --tokens 1 --temperature 2", 2, "--temperature: the flag has no effect without --sample"},
      {gpt2 + " --tokens 1 --sample --temperature 0", 2, "temperature: the value is 0"},
      {gpt2 + " --tokens 1 --min-p 0.1", 2, "--min-p: the flag has no effect without --sample"},
      {gpt2 + " --tokens 1 --typical-p 0.5", 2, "--typical-p: the flag has no effect without --sample"},
      {gpt2 + " --tokens 1 --sample --min-p 2", 2, "min_p: the value is 2"},
      {gpt2 + " --tokens 1 --no-repeat-ngram-size=-1", 2, "no_repeat_ngram_size: the value is -1"},
      {gpt2 + " --tokens 1 --length-penalty 2", 2, "--length-penalty: the flag has no effect without --num-beams"},
      {gpt2 + " --tokens 1 --num-beams 2 --num-return-sequences 3", 2, "the value is 3, but there are 2 beams"},
      {gpt2 + " --tokens 211", 4, "token 211 at [0, 0] is outside the vocabulary of 211"},
      {gpt2 + " --tokens 1 --max-new-tokens 64", 4, "make 65 tokens; expected at most the model's 64 positions"},
      {gpt2 + " --tokens 1 --sample --seed -1", 2, "--seed"},
      {gpt2 + " --tokens 1 --stop 9999999", 2, "token 9999999 is outside the vocabulary"},
      {gpt2 + " --tokens 1 --stop end", 2, "the model has no tokenizer"},
      {"--model " + golden_model("bert") + " --tokens 1", 3, "its model cannot generate text"},
      {"--model " + golden_model("schedules") + " --tokens 1", 5, ""},
  };
  for (const auto& [arguments, code, part] : wrong) {
    const Outcome run = run_generate(arguments);
    EXPECT_EQ(run.exit_code, code) << arguments << "\n" << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << arguments << "\n" << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

}  // namespace
}  // namespace gantry::testing
