// Chats: the text of each template, and the tokens that are trained on.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/config/chat_template_names.h"
#include "gantry/core/error.h"
#include "gantry/data/chat_folder.h"
#include "gantry/data/chat_template.h"
#include "gantry/data/dataset.h"
#include "gantry/data/line_encoder.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json message(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

// Two turns, after a system message if `system` is not empty.
json chat_of(const char* system = "") {
  json messages = json::array();
  if (*system) messages.push_back(message("system", system));
  messages.push_back(message("user", " Hi?\n"));
  messages.push_back(message("assistant", "Yes. "));
  messages.push_back(message("user", "And"));
  messages.push_back(message("assistant", "No"));
  return messages;
}

ChatResult chat_by_name(const std::string& name, const json& messages) {
  return FolderChat({.jinja = chat_template_text(name), .file = name})
      .write(nlohmann::ordered_json::parse(json{{"messages", messages}}.dump()), "completions");
}

std::string written(const std::string& name, const json& messages) {
  const ChatResult result = chat_by_name(name, messages);
  return result.fault.empty() ? result.chat.text : result.fault;
}

// The expected texts were rendered with the families' own Jinja templates.
TEST(ChatTemplate, WritesWhatTheFamilysTemplateDoes) {
  EXPECT_EQ(written("chatml", chat_of("Be")),
            "<|im_start|>system\nBe<|im_end|>\n<|im_start|>user\n Hi?\n<|im_end|>\n<|im_start|>assistant\nYes. "
            "<|im_end|>\n<|im_start|>user\nAnd<|im_end|>\n<|im_start|>assistant\nNo<|im_end|>\n");
  EXPECT_EQ(written("llama3", chat_of("Be")),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe<|eot_id|><|start_header_id|>user"
            "<|end_header_id|>\n\nHi?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nYes.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nAnd<|eot_id|><|start_header_id|>assistant<|end_header_id|>"
            "\n\nNo<|eot_id|>");
  EXPECT_EQ(written("llama2", chat_of("Be")),
            "<s>[INST] <<SYS>>\nBe\n<</SYS>>\n\n Hi? [/INST] Yes. </s><s>[INST] And [/INST] No </s>");
  EXPECT_EQ(written("gemma", chat_of()),
            "<bos><start_of_turn>user\nHi?<end_of_turn>\n<start_of_turn>model\nYes.<end_of_turn>\n<start_of_turn>user\n"
            "And<end_of_turn>\n<start_of_turn>model\nNo<end_of_turn>\n");
  EXPECT_EQ(written("gemma3", chat_of("Be")),
            "<bos><start_of_turn>user\nBe\n\nHi?<end_of_turn>\n<start_of_turn>model\nYes.<end_of_turn>\n"
            "<start_of_turn>user\nAnd<end_of_turn>\n<start_of_turn>model\nNo<end_of_turn>\n");
  EXPECT_EQ(written("mistral", chat_of()), "<s>[INST]  Hi?\n [/INST]Yes. </s>[INST] And [/INST]No</s>");
  EXPECT_EQ(written("phi3", chat_of("Be")),
            "<|system|>\nBe<|end|>\n<|user|>\n Hi?\n<|end|>\n<|assistant|>\nYes. <|end|>\n<|user|>\nAnd<|end|>\n"
            "<|assistant|>\nNo<|end|>\n<|endoftext|>");
  EXPECT_EQ(written("zephyr", chat_of("Be")),
            "<|system|>\nBe</s>\n<|user|>\n Hi?\n</s>\n<|assistant|>\nYes. </s>\n<|user|>\nAnd</s>\n<|assistant|>\nNo"
            "</s>\n");
}

TEST(ChatTemplate, TheAssistantsPartEndsWithItsMark) {
  const std::map<std::string, std::pair<std::string, std::string>> said = {
      {"chatml", {"Yes. <|im_end|>", "No<|im_end|>"}},        {"gemma", {"Yes.<end_of_turn>", "No<end_of_turn>"}},
      {"gemma3", {"Yes.<end_of_turn>", "No<end_of_turn>"}},   {"llama2", {" Yes. </s>", " No </s>"}},
      {"llama3", {"Yes.<|eot_id|>", "No<|eot_id|>"}},         {"mistral", {"Yes. </s>", "No</s>"}},
      {"phi3", {"Yes. <|end|>", "No<|end|>\n<|endoftext|>"}}, {"zephyr", {"Yes. </s>", "No</s>"}}};
  for (const auto& name : chat_template_names()) {
    const ChatText chat = chat_by_name(name, chat_of()).chat;
    ASSERT_EQ(chat.said.size(), 2u) << name;
    const auto part = [&](int i) {
      return chat.text.substr(chat.said[i].first, chat.said[i].second - chat.said[i].first);
    };
    EXPECT_EQ(part(0), said.at(name).first) << name;
    EXPECT_EQ(part(1), said.at(name).second) << name;
  }
}

std::string rejected(const char* why) { return fmt::format("the chat template rejects the messages ({})", why); }

TEST(ChatTemplate, FaultsAreNamed) {
  EXPECT_EQ(written("gemma", chat_of("Be")), rejected("system messages are not supported"));
  EXPECT_EQ(written("mistral", chat_of("Be")), rejected("system messages are not supported"));
  EXPECT_EQ(written("llama2", json::array({message("assistant", "x")})),
            rejected("the roles user and assistant must alternate"));
  EXPECT_EQ(written("chatml", json::array({message("tool", "x"), message("assistant", "y")})),
            rejected("the role 'tool' is unknown"));
  EXPECT_EQ(written("chatml", json::array({message("user", "x")})), "there is no assistant message");
  EXPECT_EQ(
      written("chatml", json::array({{{"role", "assistant"}, {"content", "x"}, {"tool_calls", {{{"name", "f"}}}}}})),
      rejected("this template does not support tool calls"));
  EXPECT_EQ(written("chatml", json::array({{{"role", "assistant"}, {"content", {{{"type", "text"}, {"text", "x"}}}}}})),
            "<|im_start|>assistant\nx<|im_end|>\n");
}

// --- Tokens ---

LineRules chat_rules(const std::string& name, const std::string& tokenizer) {
  return {.tokenizer = tokenizer, .sequence_length = 400, .vocabulary = 1 << 20, .chat_template = name};
}

TEST(Chats, TheAssistantsTokensAreTrainedOn) {
  const std::string line = json{{"messages", chat_of()}}.dump();
  for (const auto& name : chat_template_names()) {
    const LineTokens made = LineEncoder(chat_rules(name, "bytes")).encode(line, "line");
    const ChatText chat = chat_by_name(name, chat_of()).chat;
    EXPECT_EQ(made.tokens.size(), chat.text.size());
    ASSERT_EQ(made.trained.size(), 2u) << name;
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(made.trained[i].first, static_cast<std::int64_t>(chat.said[i].first)) << name;
      EXPECT_EQ(made.trained[i].second, static_cast<std::int64_t>(chat.said[i].second)) << name;
    }
  }
  LineRules all = chat_rules("chatml", "bytes");
  all.loss_on = "all";
  const LineTokens made = LineEncoder(all).encode(line, "line");
  EXPECT_EQ(made.trained_tokens(), static_cast<std::int64_t>(made.tokens.size()) - 1);
}

// A token with a part of the assistant's answer is trained on, even if it begins before the answer.
TEST(Chats, TokensOverAnEdgeAreTrainedOn) {
  for (const char* tokenizer : {"gpt2", "llama3"}) {
    const std::string folder = std::string(GANTRY_SOURCE_DIR "/tests/golden/tokenizers/") + tokenizer;
    const json messages = json::array({message("user", "one"), message("assistant", "\n\n  two three")});
    const LineTokens made =
        LineEncoder(chat_rules("chatml", folder)).encode(json{{"messages", messages}}.dump(), "line");
    const auto reader = load_tokenizer(folder);
    const ChatText chat = chat_by_name("chatml", messages).chat;
    ASSERT_EQ(made.trained.size(), 1u);
    const auto [first, second] = made.trained[0];
    const TokenIds ids(made.tokens.begin(), made.tokens.end());
    EXPECT_EQ(ids, reader->encode(chat.text)) << tokenizer;
    const std::string trained = reader->decode(std::span(ids).subspan(first, second - first));
    EXPECT_THAT(trained, HasSubstr("two three<|im_end|>")) << tokenizer;
    EXPECT_THAT(trained, ::testing::Not(HasSubstr("assistant"))) << tokenizer;
  }
}

// A tokenizer of the tests with this chat template.
void make_folder(const ScratchFolder& scratch, const std::string& jinja) {
  std::filesystem::copy(GANTRY_SOURCE_DIR "/tests/golden/tokenizers/gpt2", scratch.path(),
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  scratch.write("chat_template.jinja", jinja);
}

// If the template writes no end mark, the answer gets the end token instead.
TEST(Chats, AnAnswerWithoutAnEndGetsTheEndToken) {
  const ScratchFolder scratch;
  make_folder(scratch, "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}");
  const LineTokens made =
      LineEncoder(chat_rules("", scratch.path())).encode(json{{"messages", chat_of()}}.dump(), "line");
  const auto reader = load_tokenizer(scratch.path());
  const TokenIds ids(made.tokens.begin(), made.tokens.end());
  EXPECT_EQ(ids.back(), *reader->special().end);
  ASSERT_EQ(made.trained.size(), 2u);
  EXPECT_EQ(made.trained[1].second, static_cast<std::int64_t>(ids.size()));
}

// The messages and the run's variables reach the template.
TEST(Chats, VariablesOfTheRunReachTheTemplate) {
  const ScratchFolder scratch;
  make_folder(scratch, "{{ greeting }}{{ messages[0].content }}");
  LineRules rules = chat_rules("", scratch.path());
  rules.template_kwargs = R"({"greeting": "two "})";
  rules.loss_on = "all";
  const LineTokens made =
      LineEncoder(rules).encode(json{{"messages", json::array({message("assistant", "three")})}}.dump(), "line");
  const TokenIds ids(made.tokens.begin(), made.tokens.end());
  EXPECT_EQ(load_tokenizer(scratch.path())->decode(ids), "two three");
}

std::string refusal_of_chat(const std::string& name, const std::string& tokenizer, const json& messages) {
  return thrown_by<InputError>([&] {
    LineEncoder(chat_rules(name, tokenizer)).encode(json{{"messages", messages}}.dump(), "f.jsonl:3");
  });
}

TEST(Chats, RefusalsNameTheLineAndTheTemplates) {
  EXPECT_EQ(refusal_of_chat("gemma", "bytes", chat_of("Be")),
            "f.jsonl:3: the chat template rejects the messages (system messages are not supported); expected messages "
            "that the chat template gemma can render; change them, or data.chat_template");
  EXPECT_THAT(
      refusal_of_chat("", "bytes", chat_of()),
      HasSubstr("f.jsonl:3: there is no template for its messages in the tokenizer's directory or in "
                "data.chat_template; expected one of chatml, gemma, gemma3, llama2, llama3, mistral, phi3, zephyr"));
}

// --- The template of the tokenizer's directory ---

constexpr const char* kChatml =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
constexpr const char* kTurnsAlternate =
    "{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{{ message.content }}|{% endfor %}";

// Without a name, the directory's template is used, and gives the same tokens as the template by name.
TEST(Chats, TheFoldersTemplateIsUsed) {
  const ScratchFolder scratch;
  make_folder(scratch, kChatml);
  const std::string line = json{{"messages", chat_of("Be")}}.dump();
  for (const char* loss_on : {"completions", "all"}) {
    LineRules by_name = chat_rules("chatml", scratch.path()), by_folder = chat_rules("", scratch.path());
    by_name.loss_on = by_folder.loss_on = loss_on;
    const LineTokens expected = LineEncoder(by_name).encode(line, "line"),
                     made = LineEncoder(by_folder).encode(line, "line");
    EXPECT_EQ(made.tokens, expected.tokens);
    EXPECT_EQ(made.trained, expected.trained);
    EXPECT_EQ(made.trained.size(), loss_on == std::string("all") ? 1u : 2u);
  }
}

TEST(Chats, WhatTheFoldersTemplateRefusesNamesTheLine) {
  const ScratchFolder scratch;
  make_folder(scratch, kTurnsAlternate);
  const json messages = json::array({message("user", "x"), message("user", "y"), message("assistant", "z")});
  EXPECT_EQ(refusal_of_chat("", scratch.path(), messages),
            "f.jsonl:3: the chat template rejects the messages (Roles must alternate); expected messages that the "
            "chat template " +
                (scratch / "chat_template.jinja") + " can render; change them, or write prompt and completion");
}

TEST(Chats, ARunEndsWithFourAtABadChatAndSaysWhatItSkips) {
  const ScratchFolder scratch;
  make_folder(scratch, kTurnsAlternate);
  const json good = json::array({message("user", "one"), message("assistant", "two")});
  scratch.write("chats.jsonl",
                json{{"messages", good}}.dump() + "\n" + json{{"messages", json::array({good[1], good[0]})}}.dump());
  const std::string yaml = scratch.write("train.yaml", fmt::format(R"(
model:
  policy: llama
  config: {{hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 2,
            intermediate_size: 8, vocab_size: 60000, max_position_embeddings: 64}}
data: {{format: jsonl, path: {0}/chats.jsonl, tokenizer: {0}, sequence_length: 32, batch_size: 1}}
train: {{steps: 1}}
)",
                                                                   scratch.path()));
  const std::string command = "OMP_NUM_THREADS=1 " + gantry_program() + " train " + yaml;
  const Outcome bad = run_program(command), skipping = run_program(command + " --set data.bad_lines=skip");
  EXPECT_EQ(bad.exit_code, 4) << bad.err;
  EXPECT_THAT(bad.err, HasSubstr("chats.jsonl:2: the chat template rejects the messages (Roles must alternate)"));
  EXPECT_EQ(skipping.exit_code, 0) << skipping.err;
  EXPECT_THAT(skipping.out, HasSubstr("1 skipped, the first: "));
  EXPECT_THAT(skipping.out, HasSubstr("; 1 chats with the template " + (scratch / "chat_template.jinja") + "\n"));
}

// A name that contradicts the directory's template is rejected, and the error lists the names that fit.
TEST(Chats, ANameThatTheFolderContradictsIsRefused) {
  const ScratchFolder scratch;
  make_folder(scratch, kChatml);
  const std::string file = scratch / "chat_template.jinja";
  EXPECT_EQ(names_that_fit(read_chat_source(scratch.path())->jinja), std::vector<std::string>{"chatml"});
  EXPECT_EQ(refusal_of_chat("chatml", scratch.path(), chat_of()), "no error");
  EXPECT_THAT(refusal_of_chat("llama3", scratch.path(), chat_of()),
              HasSubstr("data.chat_template: llama3, but " + file +
                        " has no '<|start_header_id|>' and no '<|eot_id|>'; expected chatml; remove data.chat_template "
                        "to use that file's template"));
  make_folder(scratch, "<|turn|>{{ messages }}");
  EXPECT_THAT(refusal_of_chat("chatml", scratch.path(), chat_of()), HasSubstr("which is not built in"));
}

}  // namespace
}  // namespace gantry::testing
