// Published chat templates over conversations of each kind, compared with jinja2 itself. They are in
// chat_templates/ of the directory GANTRY_REFERENCE_FILES, which is not part of the repository.
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/data/jinja/template.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr int kNoJinja2 = 77;

OrderedJson said_by_role(const char* role, const OrderedJson& content) {
  return {{"role", role}, {"content", content}};
}

// Turns, system messages, thoughts, parts, tools with and without parameters, calls without content, empty content.
std::vector<OrderedJson> conversations() {
  const OrderedJson user = said_by_role("user", "Hi ü?\n"), answer = said_by_role("assistant", " Yes. "),
                    system = said_by_role("system", " Be brief\n"), empty = said_by_role("assistant", ""),
                    thoughts = said_by_role("assistant", "<think>\nhm\n</think>\n\nYes"),
                    parts = said_by_role("user", OrderedJson::array({{{"type", "text"}, {"text", "a "}}}));
  OrderedJson reasons = answer, call = OrderedJson{{"role", "assistant"}};
  reasons["reasoning_content"] = reasons["thinking"] = "hm";
  call["tool_calls"] = OrderedJson::parse(
      R"([{"id": "abcdefghi", "type": "function", "function": {"name": "rain", "arguments": {"zone": "n", "days": 2, "x": 1.0}}}])");
  const OrderedJson result = {{"role", "tool"}, {"tool_call_id", "abcdefghi"}, {"name", "rain"}, {"content", "7"}};
  return {OrderedJson::array({user, answer}),
          OrderedJson::array({user, answer, user, answer}),
          OrderedJson::array({system, user, answer}),
          OrderedJson::array({system, user, answer, user}),
          OrderedJson::array({user, thoughts, user, thoughts}),
          OrderedJson::array({user, reasons, user, reasons}),
          OrderedJson::array({parts, answer}),
          OrderedJson::array({user, call, result, answer}),
          OrderedJson::array({system, user, call, result, result, answer, user, answer}),
          OrderedJson::array({user, empty, user, answer}),
          OrderedJson::array({user, user, answer}),
          OrderedJson::array({answer, user, answer})};
}

OrderedJson case_of(const fs::path& file, const jinja::Template& parsed, OrderedJson variables) {
  OrderedJson made = {{"template", file.string()}};
  try {
    made["text"] =
        parsed.render(jinja::variables_of(variables), [](const auto& format) { return "<" + format + ">"; }).text;
  } catch (const jinja::RenderError& error) {
    made["fault"] = error.what();
  }
  made["variables"] = std::move(variables);
  return made;
}

TEST(JinjaReference, PublishedTemplatesAreWrittenAsByJinja2) {
  const char* folder = std::getenv("GANTRY_REFERENCE_FILES");
  if (folder == nullptr) GTEST_SKIP() << "GANTRY_REFERENCE_FILES is not set";
  const OrderedJson tools = OrderedJson::parse(
      R"([{"type": "function", "function": {"name": "rain", "description": "\"Übersicht\"", "parameters": {"type": "object",
          "properties": {"zone": {"type": "string", "enum": ["n"]}, "days": {"type": "integer"}}, "required": ["zone"]}}},
          {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}}])");
  OrderedJson cases = OrderedJson::array();
  for (const auto& entry : fs::directory_iterator(fs::path(folder) / "chat_templates")) {
    if (entry.path().extension() != ".jinja") continue;
    const jinja::Template parsed(read_file(entry.path().string()));
    for (const OrderedJson& messages : conversations())
      for (const bool prompts : {false, true})
        for (const OrderedJson& given : {OrderedJson(), tools})
          cases.push_back(case_of(entry.path(), parsed,
                                  {{"messages", messages},
                                   {"tools", given},
                                   {"add_generation_prompt", prompts},
                                   {"bos_token", "<s>"},
                                   {"eos_token", "</s>"},
                                   {"enable_thinking", prompts}}));
  }
  ASSERT_FALSE(cases.empty()) << folder;
  const ScratchFolder scratch;
  const std::string file = scratch.write("rendered.json", cases.dump());
  const char* python = std::getenv("GANTRY_PYTHON");
  const Outcome compared = run_program(std::string(python == nullptr ? "python3" : python) +
                                       " " GANTRY_SOURCE_DIR "/tests/golden/jinja/compare.py " + file);
  if (compared.exit_code == kNoJinja2) GTEST_SKIP() << "this Python has no jinja2; GANTRY_PYTHON names another";
  EXPECT_EQ(compared.exit_code, 0) << compared.out << compared.err;
}

}  // namespace
}  // namespace gantry::testing
