// Chat templates in Jinja, compared with the output of jinja2 (tests/golden/chat).
#include "gantry/data/chat_jinja.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "program.h"

namespace gantry::testing {
namespace {

using OrderedJson = nlohmann::ordered_json;
using ::testing::HasSubstr;

const std::string kChats = GANTRY_SOURCE_DIR "/tests/golden/chat/";
const std::map<std::string, std::string> kTokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};

OrderedJson chat_cases() { return OrderedJson::parse(read_file(kChats + "expected.json")); }

// Templates are cached, because parsing one takes longer than writing a chat.
const JinjaTemplate& golden_template(const OrderedJson& expected) {
  static std::map<std::string, JinjaTemplate> parsed;
  const std::string name = expected["template"];
  return parsed.try_emplace(name, read_file(kChats + name + ".jinja"), kTokens).first->second;
}

std::string written_by(const JinjaTemplate& jinja, const OrderedJson& expected) {
  const auto written = jinja.write(jinja::value_of(expected["messages"]),
                                   {{"tools", jinja::value_of(expected["tools"])}}, expected["prompts"]);
  return written.fault.empty() ? written.text : written.fault;
}

std::string expected_text(const OrderedJson& expected) {
  if (expected.contains("text")) return expected["text"];
  return "the chat template rejects the messages (" + expected["refusal"].get<std::string>() + ")";
}

TEST(ChatJinja, WritesWhatJinja2Writes) {
  const OrderedJson cases = chat_cases();
  EXPECT_GT(cases.size(), 60u);
  for (const auto& expected : cases)
    EXPECT_EQ(written_by(golden_template(expected), expected), expected_text(expected))
        << expected["template"] << ", " << expected["chat"] << (expected["prompts"] ? ", with a prompt" : "");
}

TEST(ChatJinja, AConstantPromptIsWhatPromptsAddToEachChat) {
  std::set<std::string> constant, others;
  for (const auto& expected : chat_cases()) {
    const JinjaTemplate& jinja = golden_template(expected);
    (jinja.constant_prompt() ? constant : others).insert(expected["template"]);
    if (!jinja.constant_prompt() || !expected["prompts"] || !expected.contains("text")) continue;
    OrderedJson without = expected;
    without["prompts"] = false;
    EXPECT_EQ(written_by(jinja, without) + *jinja.constant_prompt(), expected_text(expected)) << expected["template"];
  }
  EXPECT_THAT(constant, ::testing::IsSupersetOf({"chatml", "gemma", "llama3"}));
  EXPECT_THAT(others, ::testing::Contains("qwen3"));
  for (const char* source :
       {"{{ x }}{% if add_generation_prompt %}a{{ bos_token }}{% endif %}",
        "{% if add_generation_prompt %}a{% else %}b{% endif %}", "{% if add_generation_prompt %}a{% endif %}b",
        "{{ add_generation_prompt }}{% if add_generation_prompt %}a{% endif %}", "a"})
    EXPECT_FALSE(JinjaTemplate(source, {}).constant_prompt()) << source;
}

TEST(ChatJinja, ThreadsShareATemplate) {
  const OrderedJson expected = chat_cases()[0];
  const JinjaTemplate& jinja = golden_template(expected);
  std::vector<std::string> texts(4);
  {
    std::vector<std::jthread> threads;
    for (auto& text : texts)
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) text = written_by(jinja, expected);
      });
  }
  for (const auto& text : texts) EXPECT_EQ(text, expected_text(expected));
}

std::string one_text(const std::string& source, std::time_t now = 0) {
  const OrderedJson messages = OrderedJson::array({{{"role", "user"}, {"content", "x"}}});
  const auto written = JinjaTemplate(source, kTokens, now).write(jinja::value_of(messages), {}, /*prompts=*/false);
  return written.fault.empty() ? written.text : written.fault;
}

TEST(ChatJinja, TellsTheTime) {
  EXPECT_EQ(one_text("{{ strftime_now('%d %b %Y') }}", 1721995200), "26 Jul 2024");
  EXPECT_EQ(one_text("{{ strftime_now('%-m/%Y') }}", 1721995200), "7/2024");
}

TEST(ChatJinja, TokensThatAreMissingAreUndefined) {
  EXPECT_EQ(one_text("{{ bos_token + 'a' }}|{{ pad_token is defined }}{{ pad_token }}"), "<s>a|False");
  EXPECT_EQ(one_text("{{ 'b' + pad_token }}"),
            "the chat template fails on the messages (row 1, column 8: 'pad_token' is undefined)");
}

TEST(ChatJinja, WhatFailsIsSaidInOneLine) {
  EXPECT_EQ(one_text("a\n{{ raise_exception('no\\nchat') }}"), "the chat template rejects the messages (no chat)");
  EXPECT_THAT(
      one_text("a\n{{ messages[0].nothing.at }}\nb"),
      HasSubstr(
          "the chat template fails on the messages (row 2, column 24: 'dict object' has no attribute 'nothing')"));
  EXPECT_THAT(one_text("{{ messages | nosuchfilter }}"), HasSubstr("fails on the messages ("));
  const std::string comment = "{#" + std::string(1 << 20, 'x');
  const std::vector<std::string> sources = {comment, "{% if x %}", "{{ 'a }}", "{% nosuch %}", "{{ 1 + }}"};
  for (const auto& source : sources) {
    try {
      const JinjaTemplate jinja(source, {});
      ADD_FAILURE() << source;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n"))) << source;
    }
  }
}

}  // namespace
}  // namespace gantry::testing
