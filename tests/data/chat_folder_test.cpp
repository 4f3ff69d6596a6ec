// Chats with the template of a tokenizer's directory: the files that may contain it, and the parts of a chat
// that the assistant says.
#include "gantry/data/chat_folder.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string golden_jinja(const std::string& name) {
  return read_file(GANTRY_SOURCE_DIR "/tests/golden/chat/" + name + ".jinja");
}

FolderChat chat_by(const std::string& jinja) {
  return FolderChat({.jinja = jinja, .file = "chat.jinja", .tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}});
}

json said_by(const char* role, const json& content) { return {{"role", role}, {"content", content}}; }

json two_turns(const char* system = "") {
  json messages = json::array();
  if (*system) messages.push_back(said_by("system", system));
  for (const auto& [role, content] : {std::pair("user", " Hi?\n"), std::pair("assistant", "Yes. "),
                                      std::pair("user", "And"), std::pair("assistant", "No")})
    messages.push_back(said_by(role, content));
  return messages;
}

ChatResult written_line(const FolderChat& chat, const std::string& line, const char* loss_on = "completions") {
  return chat.write(nlohmann::ordered_json::parse(line), loss_on);
}

ChatResult written(const FolderChat& chat, const json& messages, const char* loss_on = "completions") {
  return written_line(chat, json{{"messages", messages}}.dump(), loss_on);
}

std::vector<std::string> said_in(const ChatResult& result) {
  std::vector<std::string> said;
  for (const auto& [begin, end] : result.chat.said) said.push_back(result.chat.text.substr(begin, end - begin));
  if (!result.fault.empty()) said.push_back(result.fault);
  return said;
}

TEST(FolderChat, LocatesTheAssistantsParts) {
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("chatml")), two_turns("Be"))),
              ElementsAre("Yes. <|im_end|>", "No<|im_end|>"));
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("llama3")), two_turns())),
              ElementsAre("Yes.<|eot_id|>", "No<|eot_id|>"));
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("mistral")), two_turns("Be"))),
              ElementsAre(" Yes. </s>", " No</s>"));
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("gemma")), two_turns())),
              ElementsAre("Yes.<end_of_turn>", "No<end_of_turn>"));
  // The token at the end of the chat belongs to the assistant's last part.
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("macros")), two_turns())),
              ElementsAre("Yes.<|end|>", "No<|end|>\n\n</s>"));
  // If only white space ends a message, this white space is the end of the answer.
  EXPECT_THAT(said_in(written(chat_by("{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}"
                                      "{% if add_generation_prompt %}assistant: {% endif %}"),
                              two_turns())),
              ElementsAre("Yes. \n\n", "No\n\n"));
}

TEST(FolderChat, CallsOfToolsAreSaid) {
  json call = said_by("assistant", "");
  call["tool_calls"] = json::array({{{"function", {{"name", "rain"}, {"arguments", {{"zone", "n"}}}}}}});
  const json messages =
      json::array({said_by("user", "Rain?"), call, said_by("tool", "7"), said_by("assistant", "Yes")});
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("chatml")), messages)),
              ElementsAre("<tool_call>\n{\"name\": \"rain\", \"arguments\": {\"zone\": \"n\"}}\n</tool_call><|im_end|>",
                          "Yes<|im_end|>"));
}

// Templates that render earlier turns differently when more turns follow: one writes the system message
// before the last user message, the other writes only the thoughts of the last answer.
TEST(FolderChat, TemplatesMayRewriteEarlierTurns) {
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("mistral_last")), two_turns("Be"))),
              ElementsAre(" Yes. </s>", " No</s>"));
  json thinks = two_turns();
  thinks[1]["content"] = "<think>\nhm\n</think>\n\nYes";
  thinks[3]["content"] = "<think>\nso\n</think>\n\nNo";
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("qwen3")), thinks)),
              ElementsAre("Yes<|im_end|>", "<think>\nso\n</think>\n\nNo<|im_end|>"));
  json reasons = two_turns();
  reasons[1]["reasoning"] = "hm", reasons[3]["reasoning"] = "so";
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("qwen3")), reasons)),
              ElementsAre("Yes. <|im_end|>", "<think>\nso\n</think>\n\nNo<|im_end|>"));
}

// A template whose generation prompt opens a thought. It writes earlier answers without their thoughts.
constexpr const char* kOpensThought =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<|User|>{{ m.content }}{% else %}<|Assistant|>"
    "{{ m.content.split('</think>')[-1] }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}";

TEST(FolderChat, HeadingsAreNoPartOfAnAnswer) {
  json thinks = two_turns();
  thinks[1]["content"] = "hm</think>Yes";
  EXPECT_THAT(said_in(written(chat_by(kOpensThought), thinks)), ElementsAre("Yes<|end|>", "No<|end|>"));
  // A channel follows the heading, and the last answer has a different end.
  EXPECT_THAT(said_in(written(chat_by("{% for m in messages %}<|start|>{{ m.role }}"
                                      "{{ '<|channel|>final' if m.role == 'assistant' }}<|message|>{{ m.content }}"
                                      "{{ '<|return|>' if loop.last else '<|end|>' }}{% endfor %}"
                                      "{% if add_generation_prompt %}<|start|>assistant{% endif %}"),
                              two_turns())),
              ElementsAre("<|channel|>final<|message|>Yes. <|end|>", "<|channel|>final<|message|>No<|return|>"));
  // Several messages of the assistant become one turn.
  json merged = two_turns();
  merged.insert(merged.begin() + 2, said_by("assistant", "Sure"));
  EXPECT_THAT(said_in(written(chat_by("{% for m in messages %}{% if m.role == 'user' or loop.previtem.role == 'user' %}"
                                      "<|{{ m.role }}|>{% endif %}{{ m.content | trim }}"
                                      "{% if loop.last or loop.nextitem.role != m.role %}<|end|>{% else %} {% endif %}"
                                      "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"),
                              merged)),
              ElementsAre("Yes. ", "Sure<|end|>", "No<|end|>"));
}

// The result of a call in the same turn has no loss, even if the template writes the function's name in it
// again.
TEST(FolderChat, ResultsOfCallsHaveNoLoss) {
  const std::string line = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null,
      "tool_calls": [{"function": {"name": "rain", "arguments": {"zone": "north", "days": 2}}}]},
      {"role": "tool", "content": "7 mm"}, {"role": "assistant", "content": "Yes"}]})";
  const std::string head =
      "{% for m in messages %}{% if m.role == 'user' %}<turn>user\n{{ m.content }}<end>\n<turn>model\n";
  const std::string call =
      "<call>{{ m.tool_calls[0].function.name }}{{ m.tool_calls[0].function.arguments | tojson }}</call>";
  EXPECT_THAT(
      said_in(written_line(chat_by(head + "{% elif m.tool_calls %}" + call +
                                   "{% elif m.role == 'tool' %}<result>{{ messages[1].tool_calls[0].function.name }}: "
                                   "{{ m.content }}</result>{% else %}{{ m.content }}<end>\n{% endif %}{% endfor %}"),
                           line)),
      ElementsAre(R"(<call>rain{"zone": "north", "days": 2}</call>)", "Yes<end>"));
}

// The heading of the next message is the end of an answer, as in GLM's templates.
TEST(FolderChat, AnEndThatTheNextHeadingGivesIsFound) {
  const FolderChat chat = chat_by(
      "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>\n{% endif %}");
  const ChatResult made = written(chat, two_turns());
  EXPECT_THAT(said_in(made), ElementsAre("Yes. <|user|>", "No"));
  EXPECT_TRUE(made.chat.lacks_end);
  EXPECT_FALSE(written(chat_by(golden_jinja("chatml")), two_turns()).chat.lacks_end);
}

TEST(FolderChat, GenerationBlocksAreTheAssistantsParts) {
  const FolderChat chat = chat_by(
      "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}!{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}");
  EXPECT_THAT(said_in(written(chat, two_turns())), ElementsAre("Yes. !", "No!"));
  EXPECT_THAT(said_in(written(chat, two_turns(), "last")), ElementsAre("No!"));
  json first = two_turns();
  first[3]["weight"] = 0;
  EXPECT_THAT(said_in(written(chat, first)), ElementsAre("Yes. !"));
}

TEST(FolderChat, MessagesWithoutALossAreLeftOut) {
  const FolderChat chat = chat_by(golden_jinja("chatml"));
  for (const char* key : {"weight", "train", "loss_mask", "trainable"})
    for (const json& off : {json(0), json(false), json(0.0)}) {
      json messages = two_turns();
      messages[1][key] = off;
      messages[3][key] = 1;
      EXPECT_THAT(said_in(written(chat, messages)), ElementsAre("No<|im_end|>")) << key << off;
    }
  EXPECT_THAT(said_in(written(chat, two_turns(), "last")), ElementsAre("No<|im_end|>"));
  json none = two_turns();
  none[1]["train"] = none[3]["train"] = false;
  EXPECT_EQ(written(chat, none).fault, "no assistant message has a loss");
  EXPECT_EQ(written(chat, none, "all").fault, "");
  none[1]["train"] = 0.5;
  EXPECT_EQ(written(chat, none).fault, "messages[1]: train is 0.5, not 0, 1, false or true");
  none[0]["weight"] = 1, none[1]["train"] = true;
  EXPECT_EQ(written(chat, none).fault,
            "messages[0]: the message asks for a loss, which only the assistant's messages have");
}

TEST(FolderChat, PartsThatCannotBeLocatedAreNamed) {
  const FolderChat counts = chat_by("{% for m in messages %}{{ m.content | length }}{{ m.content }}{% endfor %}");
  EXPECT_EQ(written(counts, two_turns()).fault,
            "the assistant's parts cannot be located, because the chat template depends on the messages' characters "
            "(data.loss_on: all does not need them)");
  EXPECT_EQ(written(counts, two_turns(), "all").fault, "");
}

// --- The variables of a template ---

TEST(FolderChat, NullMembersAreLeftOutAsTransformersDoes) {
  const FolderChat chat = chat_by("{% for m in messages %}{% for k in m %}{{ k }} {% endfor %}{% endfor %}");
  EXPECT_EQ(written_line(chat, R"({"messages": [{"role": "user", "content": "a", "name": null},
      {"role": "assistant", "content": null, "tool_calls": [{"name": "f"}]}]})",
                         "all")
                .chat.text,
            "role content role tool_calls ");
}

TEST(FolderChat, ReasoningHasTheNamesThatTemplatesRead) {
  const FolderChat chat = chat_by("{{ messages[1].reasoning_content }}|{{ messages[1].thinking }}");
  for (const char* key : {"reasoning", "thinking", "reasoning_content"}) {
    json messages = json::array({said_by("user", "a"), said_by("assistant", "b")});
    messages[1][key] = "hm";
    EXPECT_EQ(written(chat, messages, "all").chat.text, "hm|hm") << key;
  }
}

TEST(FolderChat, ArgumentsOfCallsMayBeText) {
  const FolderChat chat = chat_by("{{ messages[1].tool_calls[0].function.arguments | tojson }}");
  const std::string begin = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null,
      "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": )";
  EXPECT_EQ(written_line(chat, begin + R"("{\"b\": 1, \"a\": 2.0}"}}]}]})", "all").chat.text, R"({"b": 1, "a": 2.0})");
  EXPECT_EQ(written_line(chat, begin + R"({"b": 1}}}]}]})", "all").chat.text, R"({"b": 1})");
  EXPECT_EQ(written_line(chat, begin + R"("no json"}}]}]})", "all").chat.text, R"("no json")");
}

TEST(FolderChat, VariablesOfTheLineReplaceThoseOfTheRun) {
  const FolderChat chat({.jinja = "{{ a }}{{ b }}{{ documents }}{{ tools }}{{ bos_token }}",
                         .file = "f",
                         .tokens = {{"bos_token", "<s>"}}},
                        {{"a", 1}, {"b", 2}});
  const std::string messages = R"({"messages": [{"role": "assistant", "content": "x"}])";
  EXPECT_EQ(written_line(chat, messages + "}", "all").chat.text, "12NoneNone<s>");
  EXPECT_EQ(written_line(chat, messages + R"(, "chat_template_kwargs": {"b": 3, "bos_token": "<b>"},
      "documents": [{"title": "t"}]})",
                         "all")
                .chat.text,
            "13[{'title': 't'}]None<b>");
  EXPECT_EQ(written_line(chat, messages + R"(, "chat_template_kwargs": [1]})").fault,
            "'chat_template_kwargs' is not an object");
  for (const std::string name : {"messages", "add_generation_prompt"})
    EXPECT_EQ(written_line(chat, messages + ", \"chat_template_kwargs\": {\"" + name + "\": true}}").fault,
              "'chat_template_kwargs' contains '" + name + "', which Gantry itself passes to the template");
  EXPECT_EQ(written_line(chat, messages + R"(, "documents": "d"})").fault, "'documents' is not a list");
}

TEST(FolderChat, ToolsAndDocumentsOfTheRunApplyToLinesWithoutTheirOwn) {
  const FolderChat chat(
      {.jinja = "no{{ documents }}", .named = {{"tool_use", "{{ tools }}"}}, .file = "f", .tokens = {}},
      nlohmann::ordered_json::parse(R"({"tools": [1], "documents": [2]})"));
  const std::string messages = R"({"messages": [{"role": "assistant", "content": "x"}])";
  EXPECT_EQ(written_line(chat, messages + "}", "all").chat.text, "[1]");
  EXPECT_EQ(written_line(chat, messages + R"(, "tools": null})", "all").chat.text, "[1]");
  EXPECT_EQ(written_line(chat, messages + R"(, "tools": [3]})", "all").chat.text, "[3]");
  EXPECT_EQ(written_line(chat, messages + R"(, "chat_template_kwargs": {"tools": null}})", "all").chat.text, "no[2]");
}

TEST(FolderChat, NamedTemplatesAreForToolsAndDocuments) {
  const FolderChat chat({.jinja = "d", .named = {{"tool_use", "t"}, {"rag", "r"}}, .file = "f", .tokens = {}});
  const std::string messages = R"({"messages": [{"role": "assistant", "content": "x"}])";
  EXPECT_EQ(written_line(chat, messages + "}", "all").chat.text, "d");
  EXPECT_EQ(written_line(chat, messages + R"(, "tools": [{}]})", "all").chat.text, "t");
  EXPECT_EQ(written_line(chat, messages + R"(, "documents": [{}]})", "all").chat.text, "r");
}

TEST(FolderChat, MessagesThatAreNoneAreNamed) {
  const FolderChat chat = chat_by(golden_jinja("mistral"));
  const auto fault = [&](const json& messages) { return written(chat, messages).fault; };
  EXPECT_EQ(fault(json::object()), "'messages' is not a list, or is empty");
  EXPECT_EQ(fault(json::array({said_by("user", "x")})), "there is no assistant message");
  EXPECT_EQ(fault({said_by("user", "x"), {{"content", "y"}}}), "messages[1] has no role");
  EXPECT_EQ(fault(json::array({said_by("user", nullptr)})), "messages[0] has neither content nor tool calls");
  EXPECT_EQ(fault(json::array({said_by("user", json::array({{{"type", "audio"}}}))})),
            "messages[0] has content that is neither a string nor a list of texts and images");
  EXPECT_EQ(fault({said_by("user", "x"), said_by("assistant", "")}), "the assistant message messages[1] is empty");
  EXPECT_EQ(fault({said_by("user", "x"), said_by("user", "y"), said_by("assistant", "z")}),
            "the chat template rejects the messages (After the optional system message, conversation roles must "
            "alternate user/assistant/user/assistant/...)");
  EXPECT_EQ(written_line(chat, R"({"messages": [{"role": "assistant", "content": "x"}], "tools": "rain"})").fault,
            "'tools' is not a list");
}

TEST(FolderChat, MessagesOfPromptsMayBeEmpty) {
  const FolderChat chat = chat_by("{% for m in messages %}[{{ m.role }}{{ m.content | length }}]{% endfor %}");
  const auto made = chat.prompt(nlohmann::ordered_json::parse(R"({"messages": [{"role": "user", "content": []},
      {"role": "assistant", "content": ""}, {"role": "user", "content": "x"}]})"));
  EXPECT_EQ(made.fault, "");
  EXPECT_EQ(made.chat.text, "[user0][assistant0][user1]");
}

TEST(FolderChat, ATemplateThatCantBeReadIsNamedWhenItIsNeeded) {
  const FolderChat chat = chat_by("{% if messages %}");
  try {
    written(chat, two_turns());
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("chat.jinja: the chat template cannot be read: "));
    EXPECT_THAT(error.what(),
                HasSubstr("; expected a Jinja template; set data.chat_template to the name of a built-in template"));
  }
}

TEST(FolderChat, TheTemplateIsLookedForInThreeFiles) {
  const ScratchFolder scratch;
  EXPECT_FALSE(read_chat_source(scratch.path()));
  EXPECT_FALSE(read_chat_source("bytes"));
  scratch.write("chat_template.json", json{{"chat_template", "third"}}.dump());
  EXPECT_EQ(read_chat_source(scratch.path())->jinja, "third");
  scratch.write("tokenizer_config.json",
                json{{"bos_token", {{"content", "<s>"}}}, {"eos_token", nullptr}, {"chat_template", "second"}}.dump());
  scratch.write("special_tokens_map.json", json{{"bos_token", "<other>"}, {"eos_token", "</s>"}}.dump());
  const auto second = read_chat_source(scratch.path());
  EXPECT_EQ(second->jinja, "second");
  EXPECT_EQ(second->file, scratch / "tokenizer_config.json");
  EXPECT_EQ(second->tokens, (std::map<std::string, std::string>{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
  scratch.write(
      "tokenizer_config.json",
      json{{"chat_template", {{{"name", "tool_use"}, {"template", "no"}}, {{"name", "default"}, {"template", "yes"}}}}}
          .dump());
  EXPECT_EQ(read_chat_source(scratch.path())->jinja, "yes");
  std::filesystem::create_directory(scratch / "additional_chat_templates");
  scratch.write("additional_chat_templates/rag.jinja", "r");
  EXPECT_EQ(read_chat_source(scratch.path())->named,
            (std::map<std::string, std::string>{{"rag", "r"}, {"tool_use", "no"}}));
  scratch.write("chat_template.jinja", "first");
  EXPECT_EQ(read_chat_source(scratch.path())->file, scratch / "chat_template.jinja");
}

}  // namespace
}  // namespace gantry::testing
