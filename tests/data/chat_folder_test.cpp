// Chats by the template of a tokenizer's folder: where it is looked for, and what of a chat the assistant says.
#include "gantry/data/chat_folder.h"

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

ChatResult written(const FolderChat& chat, const json& messages, bool tells_said = true) {
  return chat.write(nlohmann::ordered_json::parse(json{{"messages", messages}}.dump()), tells_said);
}

std::vector<std::string> said_in(const ChatResult& result) {
  std::vector<std::string> said;
  for (const auto& [begin, end] : result.chat.said) said.push_back(result.chat.text.substr(begin, end - begin));
  if (!result.fault.empty()) said.push_back(result.fault);
  return said;
}

TEST(FolderChat, TellsWhatTheAssistantSays) {
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("chatml")), two_turns("Be"))),
              ElementsAre("Yes. <|im_end|>", "No<|im_end|>"));
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("llama3")), two_turns())),
              ElementsAre("Yes.<|eot_id|>", "No<|eot_id|>"));
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("mistral")), two_turns("Be"))),
              ElementsAre(" Yes. </s>", " No</s>"));
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("gemma")), two_turns())),
              ElementsAre("Yes.<end_of_turn>", "No<end_of_turn>"));
  // The token at the end of every chat belongs to what is said last.
  EXPECT_THAT(said_in(written(chat_by(golden_jinja("macros")), two_turns())),
              ElementsAre("Yes.<|end|>", "No<|end|>\n\n</s>"));
  // Where nothing but white space ends a message, that is its mark.
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

TEST(FolderChat, IndistinguishablePartsAreNamed) {
  const FolderChat last = chat_by(golden_jinja("mistral_last"));
  EXPECT_THAT(written(last, two_turns("Be")).fault,
              HasSubstr("the beginning of messages[2] cannot be located, because the chat template renders the "
                        "preceding messages differently without it (data.loss_on: all does not need it)"));
  EXPECT_EQ(written(last, two_turns("Be"), /*tells_said=*/false).fault, "");
  json thinks = two_turns();
  thinks[1]["content"] = "<think>\nhm\n</think>\n\nYes";
  EXPECT_THAT(written(chat_by(golden_jinja("qwen3")), thinks).fault,
              HasSubstr("the end of messages[1] cannot be located, because the chat template renders it differently "
                        "when more messages follow"));
}

TEST(FolderChat, MessagesThatAreNoneAreNamed) {
  const FolderChat chat = chat_by(golden_jinja("mistral"));
  const auto fault = [&](const json& messages) { return written(chat, messages).fault; };
  EXPECT_EQ(fault(json::object()), "'messages' is not a list, or is empty");
  EXPECT_EQ(fault(json::array({said_by("user", "x")})), "there is no assistant message");
  EXPECT_EQ(fault({said_by("user", "x"), {{"content", "y"}}}), "messages[1] has no role");
  EXPECT_EQ(fault(json::array({said_by("user", nullptr)})),
            "messages[0] has content that is neither a string nor a list of texts (write \"\" for a tool call)");
  EXPECT_EQ(fault(json::array({said_by("user", json::array({{{"type", "image"}}}))})),
            fault(json::array({said_by("user", nullptr)})));
  EXPECT_EQ(fault({said_by("user", "x"), said_by("assistant", "")}), "the assistant message messages[1] is empty");
  EXPECT_EQ(fault({said_by("user", "x"), said_by("user", "y"), said_by("assistant", "z")}),
            "the chat template rejects the messages (After the optional system message, conversation roles must "
            "alternate user/assistant/user/assistant/...)");
  EXPECT_EQ(chat.write(nlohmann::ordered_json::parse(
                           R"({"messages": [{"role": "assistant", "content": "x"}], "tools": "rain"})"),
                       true)
                .fault,
            "'tools' is not a list");
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
  scratch.write("chat_template.jinja", "first");
  EXPECT_EQ(read_chat_source(scratch.path())->file, scratch / "chat_template.jinja");
}

}  // namespace
}  // namespace gantry::testing
