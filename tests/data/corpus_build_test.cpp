// `gantry data build`: text to Megatron's files.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/data/corpus/build.h"
#include "gantry/data/corpus/megatron.h"
#include "program.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using testing::gantry_program;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_file;
using testing::run_program;
using testing::ScratchFolder;

const std::string kTokenizers = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/tokenizers/";

Outcome build(const std::string& arguments) { return run_program(gantry_program() + " data build " + arguments); }

// Returns the documents, decoded to text.
std::vector<std::string> documents_of(const std::string& prefix, const std::string& tokenizer) {
  const MegatronFiles files(prefix);
  const auto decoder = load_tokenizer(tokenizer);
  std::vector<std::string> texts;
  for (std::int64_t d = 0; d < files.documents(); ++d) {
    EXPECT_EQ(files.document_begin(d), d);
    TokenIds ids(static_cast<std::size_t>(files.length(d)));
    files.read(d, 0, files.length(d), ids.data());
    texts.push_back(decoder->decode(ids));
  }
  return texts;
}

TEST(DataBuild, AFileOrALineIsADocument) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("a.txt", "one\ntwo\r\n\nthree"), more = scratch.write("b.txt", "four\n");
  const std::string out = scratch / "made/out";
  const Outcome full = build(fmt::format("--tokenizer byte --output {} {} {}", out, text, more));
  ASSERT_EQ(full.exit_code, 0) << full.err;
  EXPECT_EQ(full.err, "");  // progress is shown only on a terminal
  EXPECT_THAT(full.out, HasSubstr("made/out.bin, "));
  EXPECT_THAT(full.out, HasSubstr("2 documents, 20 tokens of uint16 (byte, vocabulary 256)"));
  EXPECT_THAT(documents_of(out, "byte"), ElementsAre("one\ntwo\r\n\nthree", "four\n"));
  ASSERT_EQ(build(fmt::format("--tokenizer byte --lines --output {} {} {}", out, text, more)).exit_code, 0);
  EXPECT_THAT(documents_of(out, "byte"), ElementsAre("one", "two", "three", "four"));
}

TEST(DataBuild, JsonLinesGiveTheirMember) {
  const ScratchFolder scratch;
  const std::string lines =
      scratch.write("a.jsonl",
                    "{\"id\": 1, \"text\": \"caf\\u00e9 \\ud83d\\ude00\", \"meta\": {\"text\": \"inner\"}}\n\n"
                    "{\"text\": \"\"}\r\n  {\"list\": [{\"text\": 3}], \"text\": \"line\\nbreak\"}  ");
  const std::string out = scratch / "out", tokenizer = kTokenizers + "gpt2";
  const Outcome run = build(fmt::format("--tokenizer {} --output {} --json {}", tokenizer, out, lines));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json summary = json::parse(run.out);
  EXPECT_EQ(summary["documents"], 2);
  EXPECT_EQ(summary["empty_documents"], 1);
  EXPECT_EQ(summary["tokenizer"], "byte-level BPE");
  EXPECT_EQ(summary["tokens"], MegatronFiles(out).tokens());
  EXPECT_EQ(summary["bytes"], fs::file_size(lines));
  EXPECT_THAT(documents_of(out, tokenizer), ElementsAre("caf\u00e9 \U0001f600", "line\nbreak"));
  const std::string other = scratch.write("b.jsonl", R"({"content": "x", "text": null})");
  ASSERT_EQ(build(fmt::format("--tokenizer byte --jsonl-key content --output {} {}", out, other)).exit_code, 0);
  EXPECT_THAT(documents_of(out, "byte"), ElementsAre("x"));
}

TEST(DataBuild, EndTokensAndBrokenUtf8) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("a.txt",
                                         "good\nb\xff"
                                         "d\n\n"),
                    out = scratch / "out";
  const std::string tokenizer = kTokenizers + "llama3";
  const Outcome run = build(fmt::format("--tokenizer {} --lines --append-eos --output {} {}", tokenizer, out, text));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("1 empty documents left out\n1 documents have bytes that are not valid UTF-8"));
  EXPECT_THAT(documents_of(out, tokenizer), ElementsAre("good<|end|>",
                                                        "b\ufffd"
                                                        "d<|end|>"));
}

TEST(DataBuild, ThreadsDoNotChangeTheFiles) {
  const ScratchFolder scratch;
  std::string text;
  for (int line = 0; line < 20000; ++line)
    text += fmt::format("line {} of the lazy dog's {} caf\u00e9s\n", line, line * line);
  scratch.write("a.txt", text);
  for (const int threads : {1, 3})
    ASSERT_EQ(build(fmt::format("--tokenizer {}llama3 --lines --threads {} --output {}{} {}", kTokenizers, threads,
                                scratch / "out", threads, scratch / "a.txt"))
                  .exit_code,
              0);
  for (const char* name : {".bin", ".idx"})
    EXPECT_EQ(read_file(scratch / "out1" + name), read_file(scratch / "out3" + name));
}

TEST(DataBuild, FaultsAreOneLineAndLeaveNothing) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("a.txt", "text"), empty = scratch.write("empty.txt", "");
  struct Case {
    std::string line, said;
    int exit_code;
  };
  const auto lines = [&](const std::string& content) {
    return "--tokenizer byte " + scratch.write("x.jsonl", content);
  };
  const Case cases[] = {
      {"--tokenizer byte " + (scratch / "none.txt"), "none.txt: No such file or directory", 4},
      {"--tokenizer byte " + scratch.path(), "is not a regular file", 4},
      {"--tokenizer byte " + empty, "empty.txt: the 1 files contain no tokens", 4},
      {"--tokenizer byte --append-eos " + text, "--append-eos: the byte tokenizer has no end-of-sequence token", 2},
      {"--tokenizer " + (scratch / "none") + " " + text, "none: the path does not exist; expected 'bytes'", 4},
      {"--tokenizer byte --threads 0 " + text, "gantry data build: --threads: Value 0 not in range", 2},
  };
  for (const auto& [line, said, exit_code] : cases) {
    const Outcome run = build(line + " --output " + (scratch / "out"));
    EXPECT_EQ(run.exit_code, exit_code) << line;
    EXPECT_THAT(run.err, HasSubstr(said)) << line;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_EQ(run.out, "");
  }
  const std::pair<const char*, const char*> broken[] = {
      {"{\"text\": \"a\"}\n{\"txt\": \"a\"}\n",
       "x.jsonl:2: the object has no 'text'; expected an object with a string 'text'"},
      {"{\"text\": 3}\n", "x.jsonl:1: 'text' is not a string"},
      {"{\"text\": [\"a\"]}\n", "x.jsonl:1: 'text' is not a string"},
      {"{\"text\": \"a\", \"text\": \"b\"}\n", "x.jsonl:1: the key 'text' occurs twice"},
      {"{\"text\": \"a\"} {}\n", "x.jsonl:1: the line is not JSON at byte 15;"},
      {"\"text\"\n", "x.jsonl:1: the object has no 'text'"},
      {"{\"text\": \"\\ud800\"}\n", "x.jsonl:1: the line is not JSON"},
  };
  for (const auto& [content, said] : broken) {
    const Outcome run = build(lines(content) + " --output " + (scratch / "out"));
    EXPECT_EQ(run.exit_code, 4) << content;
    EXPECT_THAT(run.err, HasSubstr(said)) << content;
  }
  for (const auto& entry : fs::directory_iterator(scratch.path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with("out")) << entry.path();
  EXPECT_EQ(build(fmt::format("--tokenizer byte --output /proc/none/out {}", text)).exit_code, 6);
}

TEST(DataBuild, DeepJsonDoesNotExhaustTheStack) {
  const ScratchFolder scratch;
  const std::string deep = std::string(2'000'000, '[') + std::string(2'000'000, ']');
  const std::string lines = scratch.write("a.jsonl", "{\"x\": " + deep + ", \"text\": \"found\"}\n");
  ASSERT_EQ(build(fmt::format("--tokenizer byte --output {} {}", scratch / "out", lines)).exit_code, 0);
  EXPECT_THAT(documents_of(scratch / "out", "byte"), ElementsAre("found"));
}

}  // namespace
}  // namespace gantry
