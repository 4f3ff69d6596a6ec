// `gantry generate --messages` and `gantry chat`: answers by the model's chat template.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

// A small Llama with a tokenizer and a chat template.
class Chats : public ::testing::Test {
 protected:
  Chats() {
    const std::string golden = GANTRY_SOURCE_DIR "/tests/golden/";
    fs::create_directory(model());
    for (const char* name : {"llama/config.json", "llama/model.safetensors"}) fs::copy(golden + name, model());
    json tokenizer = json::parse(read_file(golden + "tokenizers/kinds/t5/tokenizer.json"));
    tokenizer["post_processor"] = nullptr;  // a prompt has no special tokens
    scratch_.write("model/tokenizer.json", tokenizer.dump());
    scratch_.write("model/chat_template.jinja",
                   "{% for message in messages %}{{ message.role }}: {{ message.content }}. {% endfor %}"
                   "{% if add_generation_prompt %}assistant:{% endif %}");
  }
  std::string model() const { return scratch_ / "model"; }
  Outcome generate(const std::string& flags, const std::string& input = "") const {
    return run_program(
        fmt::format(
            "printf '%s' '{}' | {} generate --model {} --json --max-new-tokens 5 --set comm.threads_per_rank=1 {}",
            input, gantry_program(), model(), flags),
        60);
  }
  // The tokens of the prompt and of the answer to this text.
  std::vector<json> expected(const std::string& rendered) const {
    return lines(generate("--prompt '" + rendered + "'"));
  }
  static std::vector<json> lines(const Outcome& run) {
    EXPECT_EQ(run.exit_code, 0) << run.err;
    std::vector<json> all;
    std::istringstream out(run.out);
    for (std::string line; std::getline(out, line);) all.push_back(json::parse(line));
    return all;
  }
  void expect_answer(const json& found, const std::string& rendered) const {
    const json right = expected(rendered).front();
    EXPECT_EQ(found["prompt_tokens"], right["prompt_tokens"]);
    EXPECT_EQ(found["tokens"], right["tokens"]);
  }

  ScratchFolder scratch_;
};

TEST_F(Chats, AreAnsweredByTheTemplateInEveryLayout) {
  const std::string one = R"([{"role": "user", "content": "the fox"}])";
  for (const char* layout : {"", "--set parallel.tensor=2", "--set parallel.pipeline=2"}) {
    const auto found = lines(generate(std::string("--messages - ") + layout, one));
    ASSERT_EQ(found.size(), 1u);
    expect_answer(found[0], "user: the fox. assistant:");
    EXPECT_TRUE(found[0]["text"].is_string());
  }
  const auto found = lines(generate("--messages - --system quick", one));
  expect_answer(found.at(0), "system: quick. user: the fox. assistant:");
}

TEST_F(Chats, OfSeveralLinesAreABatch) {
  const std::string file =
      scratch_.write("chats.jsonl", R"({"messages": [{"role": "user", "content": "the fox"}], "note": 1}
[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
)");
  const auto found = lines(generate("--messages " + file));
  ASSERT_EQ(found.size(), 2u);
  expect_answer(found[0], "user: the fox. assistant:");
  expect_answer(found[1], "user: a. assistant: b. user: c. assistant:");
}

TEST_F(Chats, ThatCannotBeAnsweredAreRefused) {
  const auto expect_error = [](const Outcome& run, int code, const std::string& said) {
    EXPECT_EQ(run.exit_code, code) << run.err;
    EXPECT_THAT(run.err, HasSubstr(said));
  };
  expect_error(generate("--messages -", R"({"a": 1})"), 4, "standard input: the value is not a chat");
  expect_error(generate("--messages -", "no"), 4, "standard input:1: ");
  expect_error(generate("--messages -", R"([{"role": "user"}])"), 4, "standard input: messages[0] has neither content");
  expect_error(generate("--messages - --system x", R"([{"role": "system", "content": "a"}])"), 4,
               "the chat begins with a system message, but --system is given");
  expect_error(generate("--messages - --prompt x"), 2, "--prompt excludes --messages");
  expect_error(generate("--prompt x --system x"), 2, "--system requires --messages");
  fs::remove(model() + "/chat_template.jinja");
  expect_error(generate("--messages -", R"([{"role": "user", "content": "a"}])"), 4, "there is no chat template");
}

TEST_F(Chats, ReadEachLineAndRememberTheOnesBefore) {
  const auto talk = [&](const std::string& input, const std::string& flags) {
    const Outcome run =
        run_program(fmt::format("printf '{}' | {} chat --model {} --max-new-tokens 5 --set comm.threads_per_rank=1 {}",
                                input, gantry_program(), model(), flags),
                    60);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  };
  const std::string user = R"({"role": "user", "content": "the fox"})";
  const std::string first = lines(generate("--messages -", "[" + user + "]")).at(0)["text"];
  const json second_chat = {{{"role", "user"}, {"content", "the fox"}},
                            {{"role", "assistant"}, {"content", first}},
                            {{"role", "user"}, {"content", "a dog"}}};
  const std::string second =
      lines(generate("--messages " + scratch_.write("second.json", second_chat.dump()))).at(0)["text"];
  EXPECT_EQ(talk("the fox\\na dog\\n", ""), first + "\n" + second + "\n");
  EXPECT_EQ(talk("the fox\\na dog", "--set parallel.tensor=2"), first + "\n" + second + "\n");
  EXPECT_EQ(talk("the fox\\n/reset\\nthe fox\\n/exit\\na dog\\n", ""), first + "\n" + first + "\n");
  EXPECT_EQ(talk("", "--set parallel.pipeline=2"), "");
}

TEST_F(Chats, ContinueAfterAMessageThatIsTooLong) {
  std::string words;
  for (int i = 0; i < 64; ++i) words += "fox ";
  const Outcome run = run_program(
      fmt::format("printf '{}\\nthe fox\\n' | {} chat --model {} --max-new-tokens 5 --set comm.threads_per_rank=1 "
                  "--set parallel.tensor=2",
                  words, gantry_program(), model()),
      60);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("error: the chat: the chat with this message has "));
  EXPECT_THAT(run.err, HasSubstr("expected at most 59, so that the answer fits into the model's 64 positions"));
  const std::string answer =
      lines(generate("--messages -", R"([{"role": "user", "content": "the fox"}])")).at(0)["text"];
  EXPECT_EQ(run.out, answer + "\n");
}

TEST_F(Chats, MayHaveEmptyAnswers) {
  const auto found = lines(generate("--messages -", R"([{"role": "user", "content": "a"}, {"role": "assistant",
      "content": ""}, {"role": "user", "content": "c"}])"));
  expect_answer(found.at(0), "user: a. assistant: . user: c. assistant:");
}

}  // namespace
}  // namespace gantry::testing
