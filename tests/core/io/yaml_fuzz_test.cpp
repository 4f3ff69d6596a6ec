// Hostile and mutated configurations. Each of them is either read, or rejected with an error that states the
// place. Seeds are fixed. The longest texts have a million characters, so a reader whose time is quadratic in
// the length exceeds the time limit of the test.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>
#include <regex>

#include "gantry/core/config.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

const std::string kValid[] = {
    "model: {policy: gpt2, config: {n_embd: 256, n_layer: 8, n_head: 8, note: \"a \\\"b\\\" \\u00e9\"}}\n"
    "parallel: {tensor: 2, pipeline: 2, data: auto, order: [pp, dp, tp]}\n"
    "schedule:\n  name: 1f1b\n  microbatches: 8\n  layers: \"Ett*3|(t)*4L\"\n"
    "data: {format: text, path: corpus.txt, sequence_length: 128, batch_size: 32}\n"
    "optimizer: {name: adamw, lr: 3.0e-4, betas: [0.9, 0.95], no_decay: [\"*.bias\"]}\n"
    "train: {steps: 100, seed: 1}\n",
    "# A comment\nmodel:\n  path: models/gpt2\n  config:\n    n_layer: 4\n    deep:\n      - a: 1\n        b: [x, 'y "
    "z']\n"
    "      - |\n        a block\n        of text\n    folded: >-\n      one\n      line\nprecision: float64\n"
    "checkpoint: {path: runs, every: 5, keep: 2, resume: auto}\nlibraries: [a.so, b.so]\noutput: runs/demo\n",
    "{\"model\": {\"policy\": \"gpt2\", \"config\": {\"n_layer\": 2, \"drop\": 1.5e-1, \"tie\": true, \"x\": null}},\n"
    " \"parallel\": {\"pipeline\": 2}, \"schedule\": {\"name\": \"a, b #1.csv\", \"layers\": [1, 1]},\n"
    " \"comm\": {\"backend\": \"local\", \"timeout_seconds\": 5.5}}\n"};

const std::string kPieces[] = {"[",
                               "]",
                               "{",
                               "}",
                               ",",
                               ":",
                               ": ",
                               "-",
                               "- ",
                               "? ",
                               "&a ",
                               "*a",
                               "!!map ",
                               "!x ",
                               "|\n",
                               ">\n",
                               "\"",
                               "'",
                               "#",
                               "%",
                               "@",
                               "`",
                               "\t",
                               "\n",
                               "\r\n",
                               "\r",
                               "---",
                               "...",
                               "<<: ",
                               "\\",
                               "\\x",
                               "\\uD800",
                               "\xff",
                               "\xc3",
                               "\xEF\xBB\xBF",
                               "\xC2\x85",
                               ".inf",
                               ".nan",
                               "1e99",
                               "~",
                               "null:",
                               "    ",
                               "\n---\n",
                               "\n...\n",
                               "0x1",
                               "-0",
                               "model: ",
                               "[[[[",
                               "}}}}",
                               "\"\\0\"",
                               "\u2028",
                               "%YAML 1.2\n",
                               "%TAG ! x\n",
                               "999999999999999999999"};

// Returns "" if the text was read, otherwise the error.
std::string refusal_of(const std::string& text) {
  try {
    const Config config = Config::parse(text, "f.yaml");
    // An accepted configuration reads back unchanged, as YAML and as JSON.
    const std::string resolved = config.to_yaml();
    EXPECT_EQ(Config::parse(resolved).to_yaml(), resolved) << text;
    EXPECT_EQ(Config::parse(config.to_json()).to_yaml(), resolved) << text;
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a ConfigError: " << error.what() << "\n" << text;
    return "";
  }
}

void expect_place(const std::string& refusal, const std::string& text) {
  static const std::regex place("^f\\.yaml:[1-9][0-9]*:[1-9][0-9]*: .");
  EXPECT_TRUE(std::regex_search(refusal.substr(0, 100), place)) << refusal << "\n" << text.substr(0, 2000);
  EXPECT_EQ(refusal.find('\n'), std::string::npos) << text;
  EXPECT_LT(refusal.size(), 60000u);
}

// Changes a text in one to four places: flips a bit, removes, doubles or copies bytes, truncates the text, or
// inserts a piece of syntax.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::string mutate(std::string text) {
    for (int changes = 1 + static_cast<int>(below(4)); changes > 0; --changes) change(text);
    return text;
  }

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void change(std::string& text) {
    const std::size_t at = below(text.size() + 1), length = std::min(below(12), text.size() - at);
    switch (below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.resize(at);
        break;
      case 4:
        text.insert(below(text.size() + 1), text.substr(at, 40));
        break;
      case 5:
        text.insert(at, std::string(below(80), " \t-[{\n:"[below(7)]));
        break;
      default:
        text.insert(at, kPieces[below(std::size(kPieces))]);
    }
  }

  std::mt19937_64 random_;
};

TEST(YamlFuzz, TheValidDocumentsAreRead) {
  for (const auto& text : kValid) EXPECT_EQ(refusal_of(text), "");
}

TEST(YamlFuzz, MutationsAreReadOrRefusedWithTheirPlace) {
  int read = 0, refused = 0;
  for (const auto& text : kValid) {
    Mutator mutator(20240607);
    for (int round = 0; round < 6000; ++round) {
      const std::string mutated = mutator.mutate(text);
      const std::string refusal = refusal_of(mutated);
      refusal.empty() ? ++read : ++refused;
      if (!refusal.empty()) expect_place(refusal, mutated);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(refused, 5000);
}

TEST(YamlFuzz, RandomSyntaxIsReadOrRefusedWithItsPlace) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (std::size_t pieces = random() % 12; pieces > 0; --pieces) text += kPieces[random() % std::size(kPieces)];
    const std::string refusal = refusal_of(text);
    EXPECT_FALSE(refusal.empty()) << text;  // none of these has a model
    expect_place(refusal, text);
    if (HasFailure()) return;
  }
}

std::string repeated(const std::string& piece, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += piece;
  return text;
}

struct Hostile {
  std::string text;
  const char* said;  // part of the error; null if the text is accepted
};

std::vector<Hostile> hostile_documents() {
  const std::string model = "model: {policy: gpt2}\n";
  constexpr std::size_t kAlmostMost = 1000000, kMany = 200000;
  return {{",", "f.yaml:1:1"},
          {model + ",", "f.yaml:2:1"},
          {model + "---\n" + model, "f.yaml:2:1: several documents"},
          {model + "...\n" + model, "several documents"},
          {"---\n" + model + "...\n", nullptr},
          {"\xEF\xBB\xBF" + model, nullptr},
          {"\xFF\xFEm\0", "the text is not UTF-8"},
          {model + "output: &a x\nlibraries: [*a]\n", "f.yaml:2:9: anchors are not supported"},
          {model + "a: &a [*a]\n", "anchors are not supported"},
          {"%YAML 1.2\n---\n" + model, "f.yaml:1:1: lines that begin with % are not supported"},
          {model + "%nothing: here\n", "f.yaml:2:1: lines that begin with % are not supported"},
          {model + "libraries: *a\n", "f.yaml:2:"},
          {"model:\n  <<: {policy: gpt2}\n  policy: gpt2\n", "f.yaml:2:3: model.<<: unknown key"},
          {"model: {policy: gpt2, config: {<<: [{a: 1}, {b: 2}]}}", "the key is a merge key"},
          {"model: {policy: gpt2, config: {a: 1, b: 2, 'a': 3}}", "model.config.a: the key appears twice"},
          {"model: {policy: gpt2, policy: gpt2}", "model.policy: the key appears twice"},
          {std::string("model: {policy: \"gp\0t2\"}", 24), "f.yaml:1:20: the file contains a zero byte"},
          {"model: {policy: \"gp\\0t2\"}", "the string contains a zero character"},
          {"model: {policy: !!binary Z3B0Mg==}", "the tag"},
          {"model: {policy: gpt2}\n\xC0\xAF: 1", "f.yaml:2:1: the text is not UTF-8"},
          {"model:\n  policy: gpt2\n  config:\n    a: \xED\xA0\x80\n", "f.yaml:4:8: the text is not UTF-8"},
          {repeated("[", kAlmostMost), "f.yaml:1:65: the document is nested deeper"},
          {repeated("{a: ", kAlmostMost), "nested deeper"},
          {repeated("- ", kAlmostMost), "nested deeper"},
          {repeated("? ", kAlmostMost), "nested deeper"},
          {repeated("- ? ", kAlmostMost), "nested deeper"},
          {model + "a: " + repeated("[]", kAlmostMost), "f.yaml:2:"},
          {model + "a: [" + repeated("[],", kAlmostMost) + "]", "a: unknown key"},
          {model + repeated("a: 1\n", kAlmostMost), "and "},
          {model + "? " + repeated("k", kAlmostMost) + "\n: 1", "unknown key"},
          {model + "output: \"" + repeated("x\\n", kMany) + "\"", nullptr},
          {model + "output: |\n" + repeated("  x\n", kMany), nullptr},
          {model + "output: " + repeated("x ", kMany), nullptr},
          {model + repeated("#", kAlmostMost), nullptr},
          {model + "libraries: [" + repeated("a,", kMany) + "]", nullptr},
          {model + "parallel: {tensor: " + repeated("9", kAlmostMost) + "}", "parallel.tensor"},
          {model + "schedule: {layers: \"" + repeated("(", kAlmostMost) + "\"}", "f.yaml:2:12"},
          {model + repeated("&a ", kAlmostMost), "f.yaml:2:"},
          {model + repeated("!a ", kAlmostMost), "f.yaml:2:"},
          {model + repeated("\"", kAlmostMost), "f.yaml:2:"},
          {model + repeated("%", kAlmostMost), "f.yaml:2:"},
          {repeated("%TAG !a! tag:\n", kAlmostMost) + model, "f.yaml:"},
          {repeated(" ", (1 << 20) + 1), "f.yaml:1:1048577: the document has 1048577 bytes"}};
}

TEST(YamlFuzz, HostileDocumentsAreRefused) {
  for (const auto& [text, said] : hostile_documents()) {
    const std::string refusal = refusal_of(text);
    EXPECT_EQ(refusal.empty(), said == nullptr) << text.substr(0, 60) << "\n" << refusal.substr(0, 200);
    if (!said) continue;
    EXPECT_NE(refusal.find(said), std::string::npos) << refusal.substr(0, 400) << "\n not " << said;
    expect_place(refusal, text);
  }
}

// YAML does not allow tabs as indentation. The parser must not move a key silently because of one.
TEST(YamlFuzz, TabsDoNotMoveKeys) {
  for (const char* text : {"model:\n\tpolicy: gpt2\n", "model:\n  policy: gpt2\n\tpath: x\n",
                           "model:\n  policy: gpt2\n\tprecision: float64\n"}) {
    const std::string refusal = refusal_of(text);
    EXPECT_FALSE(refusal.empty()) << text;
    expect_place(refusal, text);
  }
  EXPECT_NE(refusal_of("model:\n\tpolicy: gpt2\n").find("the line is indented with a tab; indent it with spaces"),
            std::string::npos)
      << refusal_of("model:\n\tpolicy: gpt2\n");
}

}  // namespace
}  // namespace gantry
