// The engine of chat templates: equality with jinja2 (tests/golden/jinja), and the bounds of untrusted input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/data/jinja/template.h"
#include "program.h"

namespace gantry::testing {
namespace {

using OrderedJson = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string in_brackets(const std::string& format) { return "<" + format + ">"; }

// The text, or "error: " and the error's text.
std::string rendered(const std::string& source, const OrderedJson& variables = OrderedJson::object(),
                     const jinja::Limits& limits = {}) {
  try {
    return jinja::Template(source).render(jinja::variables_of(variables), in_brackets, limits).text;
  } catch (const jinja::RaisedError& error) {
    return std::string("raised: ") + error.what();
  } catch (const jinja::RenderError& error) {
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n"))) << source;
    return std::string("error: ") + error.what();
  }
}

TEST(Jinja, WritesWhatJinja2Writes) {
  const OrderedJson table = OrderedJson::parse(read_file(GANTRY_SOURCE_DIR "/tests/golden/jinja/expected.json"));
  EXPECT_GT(table["cases"].size(), 1000u);
  for (const auto& expected : table["cases"]) {
    const std::string text = rendered(expected["template"], table["context"]);
    if (expected.contains("text"))
      EXPECT_EQ(text, expected["text"]) << expected["template"];
    else if (expected.contains("raised"))
      EXPECT_EQ(text, "raised: " + expected["raised"].get<std::string>()) << expected["template"];
    else
      EXPECT_THAT(text, ::testing::StartsWith("error: row ")) << expected["template"] << ", " << expected["error"];
  }
}

TEST(Jinja, ErrorsNameTheRowTheColumnAndTheConstruct) {
  EXPECT_EQ(rendered("a\n  {{ 1 | nosuch }}"), "error: row 2, column 10: no filter named 'nosuch'");
  EXPECT_EQ(rendered("{% if x %}"), "error: row 1, column 11: unexpected end of template; if has no endif");
  EXPECT_EQ(rendered("\n{% include 'x' %}"),
            "error: row 2, column 4: the tag 'include' is not supported in chat templates");
  EXPECT_EQ(rendered("{{ 'a' | random }}"),
            "error: row 1, column 10: filter 'random': not supported in chat templates");
  EXPECT_EQ(rendered("{{ lipsum() }}"), "error: row 1, column 10: lipsum() is not supported in chat templates");
  EXPECT_EQ(rendered("{{ m.x }}{{ m.x.y }}", {{"m", OrderedJson::object()}}),
            "error: row 1, column 17: 'dict object' has no attribute 'x'");
  EXPECT_EQ(rendered("{{ [].append(1) }}"),
            "error: row 1, column 7: access to attribute 'append' of 'list' object is unsafe");
  EXPECT_EQ(rendered("{{ 2 ** 200 }}"), "error: row 1, column 6: an integer of more than 38 digits");
  EXPECT_EQ(rendered("\xff"), "error: row 1, column 1: the template is not UTF-8");
}

TEST(Jinja, NumbersOfTheLineKeepTheirKind) {
  const auto line =
      OrderedJson::parse(R"({"a": [1, 1.0, 18446744073709551615, -9223372036854775808, 1e300, true, null]})");
  EXPECT_EQ(rendered("{{ a }}", line), "[1, 1.0, 18446744073709551615, -9223372036854775808, 1e+300, True, None]");
  EXPECT_EQ(rendered("{{ a | tojson }}", line),
            "[1, 1.0, 18446744073709551615, -9223372036854775808, 1e+300, true, null]");
}

TEST(Jinja, GenerationBlocksAreFound) {
  const jinja::Template marked(
      "{% for m in ['a', 'é'] %}<{% generation %}{{ m }}!{% endgeneration %}>{% endfor %}"
      "{% set x %}{% generation %}y{% endgeneration %}{% endset %}{{ x }}");
  const jinja::Rendered made = marked.render({}, in_brackets);
  EXPECT_EQ(made.text, "<a!><é!>y");
  EXPECT_THAT(made.generated, ElementsAre(Pair(1, 3), Pair(5, 8)));
}

// --- A template is untrusted input ---

TEST(Jinja, TimeIsBounded) {
  const std::string loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  EXPECT_THAT(rendered(loops), HasSubstr("error: row 1, column 45: the template "));
  // Lists that share their parts, so that comparing or printing them takes 2^60 steps.
  const std::string shared =
      "{% set n = namespace(a=[], b=[]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}"
      "{% endfor %}";
  EXPECT_THAT(rendered(shared + "{{ n.a == n.b }}"), HasSubstr("steps"));
  EXPECT_THAT(rendered(shared + "{{ n.a }}"), HasSubstr("error: "));
  EXPECT_THAT(rendered(shared + "{{ n.a | tojson }}"), HasSubstr("error: "));
}

TEST(Jinja, MemoryAndOutputAreBounded) {
  for (const char* source :
       {"{{ 'a' * 1000000000000 }}", "{{ [1] * 1000000000000 }}", "{{ 'a' | center(1000000000) }}",
        "{{ '%1000000000d' % 1 }}", "{{ '{:1000000000}'.format(1) }}", "{{ 'ab'.replace('', 'x' * 60000000) }}",
        "{{ ['a', 'a', 'a'] | join('x' * 60000000) }}", "{{ 'a' | indent(1000000000, true) }}",
        "{{ [1] | batch(1000000000, 'x') | list }}", "{{ [1] | slice(1000000000) | list }}",
        "{{ [[1]] | tojson(indent=100000000000) | length > 9999999 }}{{ 'a' * 99999999 }}",
        "{{ 'a'.zfill(9999999999) }}",
        "{% set n = namespace(x='a') %}{% for i in range(100) %}{% set n.x = n.x ~ n.x %}{% endfor %}"})
    EXPECT_THAT(rendered(source), ::testing::StartsWith("error: ")) << source;
  const jinja::Limits small{.output = 100};
  EXPECT_EQ(rendered("{% for i in range(101) %}x{% endfor %}", OrderedJson::object(), small),
            "error: row 1, column 26: the template writes more than 100 bytes");
  EXPECT_THAT(rendered("{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = n.x + [i] %}{% endfor %}"),
              HasSubstr("bytes of values"));
}

TEST(Jinja, NestingIsBounded) {
  EXPECT_THAT(rendered("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("nested"));
  EXPECT_THAT(rendered("{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}{% endfor %}"),
              HasSubstr("values nested more than 500 deep"));
  EXPECT_THAT(rendered("{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}"), HasSubstr("nested"));
  EXPECT_THAT(rendered("{{ " + std::string(100000, '-') + "1 }}"), HasSubstr("nested"));
  std::string sum = "{{ 1", chain = "{{ a", blocks;
  for (int i = 0; i < 100000; ++i) sum += " + 1", chain += ".a", blocks += "{% if 1 %}";
  EXPECT_THAT(rendered(sum + " }}"), HasSubstr("nested"));
  EXPECT_THAT(rendered(chain + " }}"), HasSubstr("nested"));
  for (int i = 0; i < 100000; ++i) blocks += "{% endif %}";
  EXPECT_THAT(rendered(blocks), HasSubstr("nested"));
  OrderedJson deep = OrderedJson::array();
  for (int i = 0; i < 2000; ++i) deep = OrderedJson::array({std::move(deep)});
  EXPECT_THAT(rendered("{{ deep }}", {{"deep", deep}}), HasSubstr("nested"));
}

TEST(Jinja, NamespacesThatContainThemselvesAreReleased) {
  EXPECT_THAT(rendered("{% set n = namespace() %}{% set n.n = n %}{{ n }}"), HasSubstr("nested"));
  EXPECT_EQ(
      rendered("{% set n = namespace() %}{% set n.n = [n] %}{% macro f() %}{{ n.x }}{% endmacro %}{% set n.f = f %}x"),
      "x");
}

}  // namespace
}  // namespace gantry::testing
