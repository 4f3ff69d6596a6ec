// `gantry generate` and `gantry chat` with several adapters: each answer is that of a model with one adapter.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kHidden = 48;  // hidden_size of tests/golden/llama

// A small Llama with a tokenizer, a chat template and the adapters "low" and "high" of different ranks and layers.
class Adapters : public ::testing::Test {
 protected:
  Adapters() {
    const std::string golden = GANTRY_SOURCE_DIR "/tests/golden/";
    fs::create_directory(model());
    for (const char* name : {"llama/config.json", "llama/model.safetensors", "tokenizers/kinds/t5/tokenizer.json"})
      fs::copy(golden + name, model());
    scratch_.write("model/tokenizer_config.json", R"({"add_eos_token": false})");
    scratch_.write("model/chat_template.jinja",
                   "{% for message in messages %}{{ message.role }}: {{ message.content }}. {% endfor %}"
                   "{% if add_generation_prompt %}assistant:{% endif %}");
    write_adapter("low", 2, "q_proj");
    write_adapter("high", 4, "o_proj");
  }

  void write_adapter(const std::string& name, int rank, const std::string& layer) {
    fs::create_directory(scratch_ / name);
    scratch_.write(
        name + "/adapter_config.json",
        json{{"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", 8 * rank}, {"target_modules", {layer}}}.dump());
    TensorDict tensors;
    for (int i = 0; i < 4; ++i) {
      const std::string path = fmt::format("base_model.model.model.layers.{}.self_attn.{}", i, layer);
      const auto waves = [&](int rows, int columns) {
        return torch::sin(torch::arange(rows * columns, torch::kFloat32) * (i + rank)).view({rows, columns});
      };
      tensors.set(path + ".lora_A.weight", waves(rank, kHidden));
      tensors.set(path + ".lora_B.weight", waves(kHidden, rank));
    }
    write_safetensors(scratch_ / name + "/adapter_model.safetensors", tensors);
  }

  std::string model() const { return scratch_ / "model"; }
  std::string both() const {
    return fmt::format("--adapter low={} --adapter high={} ", scratch_ / "low", scratch_ / "high");
  }
  Outcome run(const std::string& command, const std::string& flags, const std::string& input = "") const {
    return run_program(fmt::format("printf '%s' '{}' | {} {} --model {} --max-new-tokens 5 --set "
                                   "comm.threads_per_rank=1 {}",
                                   input, gantry_program(), command, model(), flags),
                       60);
  }
  std::vector<json> generate(const std::string& flags, const std::string& input = "") const {
    const Outcome outcome = run("generate", "--json " + flags, input);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::vector<json> all;
    std::istringstream out(outcome.out);
    for (std::string line; std::getline(out, line);) all.push_back(json::parse(line));
    return all;
  }
  void expect_error(const Outcome& outcome, int code, const std::string& said) const {
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(said));
  }

  ScratchFolder scratch_;
};

const std::string kFox = R"("messages": [{"role": "user", "content": "the fox"}])";

std::string chats_of(const std::vector<std::string>& adapters) {
  std::string lines;
  for (const std::string& adapter : adapters)
    lines += "{" + (adapter.empty() ? "" : "\"adapter\": " + adapter + ", ") + kFox + "}\n";
  return lines;
}

TEST_F(Adapters, AnswerTheChatsThatNameThem) {
  const std::string one = chats_of({""});
  const json base = generate("--messages -", one).at(0),
             low = generate("--messages - --adapter " + scratch_ / "low", one).at(0),
             high = generate("--messages - --adapter " + scratch_ / "high", one).at(0);
  EXPECT_NE(base["tokens"], low["tokens"]);
  EXPECT_NE(base["tokens"], high["tokens"]);
  EXPECT_NE(low["tokens"], high["tokens"]);
  const std::string file = scratch_.write("chats.jsonl", chats_of({"\"high\"", "null", "", "\"high\"", "\"low\""}));
  for (const char* layout : {"", "--set parallel.tensor=2", "--set parallel.pipeline=2"}) {
    const auto found = generate(both() + "--messages " + file + " " + layout);
    ASSERT_EQ(found.size(), 5u);
    const std::vector<json> right = {high, base, low, high, low};
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(found[i]["prompt"], i + 1);
      EXPECT_EQ(found[i]["prompt_tokens"], right[i]["prompt_tokens"]);
      EXPECT_EQ(found[i]["tokens"], right[i]["tokens"]) << layout << " " << i;
    }
  }
}

TEST_F(Adapters, TheFirstOneIsActive) {
  const auto plain = generate("--tokens 40,7,101 --adapter " + scratch_ / "low");
  EXPECT_EQ(generate(both() + "--tokens 40,7,101"), plain);
  EXPECT_EQ(generate("--tokens 40,7,101 --adapter only=" + scratch_ / "low"), plain);
  EXPECT_EQ(
      generate(fmt::format("--tokens 40,7,101 --adapter {} --adapter high={}", scratch_ / "low", scratch_ / "high")),
      plain);
}

TEST_F(Adapters, ChangeWithinAChat) {
  const auto answer = [&](const std::string& flags) {
    const Outcome outcome = run("chat", flags, "the fox\n");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string base = answer(""), low = answer("--adapter " + scratch_ / "low"),
                    high = answer("--adapter " + scratch_ / "high");
  for (const char* layout : {"", "--set parallel.tensor=2"}) {
    const Outcome outcome =
        run("chat", both() + layout,
            "the fox\n/reset\n/adapter high\nthe fox\n/reset\n/adapter wide\nthe fox\n/reset\n/adapter\nthe fox\n");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, low + high + high + base) << layout;
    EXPECT_THAT(outcome.err, HasSubstr("error: /adapter: there is no adapter 'wide'; expected low, high"));
  }
  const Outcome single = run("chat", "--adapter " + scratch_ / "low", "/adapter\n/adapter default\nthe fox\n");
  EXPECT_EQ(single.out, low);
  EXPECT_THAT(single.err, HasSubstr("error: /adapter: the model without an adapter is asked for, but its only adapter "
                                    "has no name"));
}

TEST_F(Adapters, ErrorsAreOneLineEach) {
  const std::string low = scratch_ / "low";
  expect_error(run("generate", fmt::format("--tokens 1 --adapter a={0} --adapter a={0}", low)), 2,
               "--adapter: two adapters have the name 'a'; expected each name once");
  expect_error(run("generate", fmt::format("--tokens 1 --adapter {0} --adapter default={0}", low)), 2,
               "--adapter: two adapters have the name 'default'");
  expect_error(run("generate", "--tokens 1 --adapter a=nowhere"), 4, "nowhere/adapter_config.json");
  expect_error(run("generate", both() + "--messages -", chats_of({"\"low\"", "\"wide\""})), 4,
               "standard input:2: there is no adapter 'wide'; expected low, high; add --adapter wide=DIR");
  expect_error(run("generate", "--messages -", chats_of({"\"wide\""})), 4,
               "standard input: there is no adapter 'wide'; expected an adapter of --adapter");
  expect_error(run("generate", both() + "--messages -", chats_of({"3"})), 4,
               "standard input: adapter is 3; expected the name of an adapter, or null");
  expect_error(run("generate", both() + fmt::format("--tokens 1 --adapter other={}/tests/golden/lora/qv/adapter",
                                                    GANTRY_SOURCE_DIR)),
               4, "the adapter belongs to another base model");
}

}  // namespace
}  // namespace gantry::testing
