// JSON Lines: the tokens that are trained on, the packing of documents, and that packing changes no result.
#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/data/dataset.h"
#include "gantry/tensors/libtorch.h"
#include "lora_rig.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

using Numbers = std::vector<std::int64_t>;

DataConfig lines_config(const ScratchFolder& scratch, const std::string& lines, int length) {
  DataConfig config;
  config.format = "jsonl";
  config.path = scratch.write("lines.jsonl", lines);
  config.tokenizer = "bytes";
  config.sequence_length = length;
  return config;
}

Numbers read_sample(const Dataset& dataset, std::int64_t index) {
  Numbers numbers(3 * static_cast<std::size_t>(dataset.sequence_length()));
  dataset.read(index, numbers.data());
  return numbers;
}

TEST(JsonLines, CompletionsAloneAreCountedAndDocumentsPacked) {
  const ScratchFolder scratch;
  const auto dataset = open_dataset(lines_config(scratch, R"({"prompt": "ab", "completion": "cd", "other": [1]}
{"text": "xyz"}

{"prompt": "", "completion": "pq"}
)",
                                                 6),
                                    256);
  ASSERT_EQ(dataset->size(), 1);
  EXPECT_EQ(read_sample(*dataset, 0),
            (Numbers{'a', 'b', 'c', 'x', 'y', 'p', -100, 'c', 'd', 'y', 'z', 'q', 0, 0, 0, 1, 1, 2}));
  const auto narrower = open_dataset(lines_config(scratch, "{\"text\": \"abcd\"}\n{\"text\": \"efgh\"}", 5), 256);
  ASSERT_EQ(narrower->size(), 2);
  EXPECT_EQ(read_sample(*narrower, 1), (Numbers{'e', 'f', 'g', 0, 0, 'f', 'g', 'h', -100, -100, 0, 0, 0, 1, 1}));
}

std::string refusal_of_lines(const std::string& lines, int length = 6, std::int64_t vocabulary = 256) {
  const ScratchFolder scratch;
  return thrown_by<InputError>([&] { open_dataset(lines_config(scratch, lines, length), vocabulary); });
}

TEST(JsonLines, BadLinesAreNamed) {
  EXPECT_THAT(refusal_of_lines("{\"text\": \"abc\"}\n{\"text\": 1}"),
              HasSubstr("lines.jsonl:2: 'text' is not a string"));
  EXPECT_THAT(refusal_of_lines("{\"text\": \"abc\"\n"), HasSubstr("lines.jsonl:1: "));
  EXPECT_THAT(refusal_of_lines("\n\n[1]"), HasSubstr("lines.jsonl:3: the line is not a JSON object"));
  EXPECT_THAT(refusal_of_lines("{\"prompt\": \"a\"}"),
              HasSubstr("the object has none of the three forms; expected an object with text"));
  EXPECT_THAT(refusal_of_lines("{\"prompt\": \"a\", \"completion\": \"\"}"), HasSubstr("the completion is empty"));
  EXPECT_THAT(refusal_of_lines("{\"prompt\": \"a\", \"completion\": \"b\", \"text\": \"c\"}"),
              HasSubstr("the object has more than one of the three forms"));
  EXPECT_THAT(refusal_of_lines("{\"messages\": []}"), HasSubstr("there is no template for its messages"));
  EXPECT_THAT(refusal_of_lines("{\"text\": \"abcdefgh\"}"),
              HasSubstr("has 8 tokens, more than data.sequence_length 6 + 1 = 7"));
  EXPECT_THAT(refusal_of_lines("{\"text\": \"a\"}"), HasSubstr("the loss covers none of them"));
  EXPECT_THAT(refusal_of_lines("{\"text\": \"az\"}", 6, 120), HasSubstr("token 122 of the tokenizer"));
  EXPECT_THAT(refusal_of_lines(" \n"), HasSubstr("there are no lines that are not empty"));
}

// --- Pairs ---

TEST(JsonLines, PairsAreSamplesOfTheirOwn) {
  const ScratchFolder scratch;
  DataConfig config = lines_config(scratch, R"({"prompt": "ab", "completion": "cde"}
{"prompt": "xyzw", "completion": "q"})",
                                   4);
  config.target_length = 3;
  const auto dataset = open_dataset(config, 256);
  ASSERT_EQ(dataset->size(), 2);
  Numbers numbers(11);
  dataset->read(0, numbers.data());
  EXPECT_EQ(numbers, (Numbers{'a', 'b', 0, 0, 1, 1, 0, 0, 'c', 'd', 'e'}));
  dataset->read(1, numbers.data());
  EXPECT_EQ(numbers, (Numbers{'x', 'y', 'z', 'w', 1, 1, 1, 1, 'q', -100, -100}));
  EXPECT_EQ(dataset->summary(),
            "2 lines with 10 tokens (5.0 per line, at most 5), 4 of them in the loss; 2 samples, 71.4% full");
  config.target_length = 2;
  config.bad_lines = "cut";
  const auto truncated = open_dataset(config, 256);
  Numbers shorter(10);
  truncated->read(0, shorter.data());
  EXPECT_EQ(shorter, (Numbers{'a', 'b', 0, 0, 1, 1, 0, 0, 'c', 'd'}));
  EXPECT_THAT(truncated->summary(), HasSubstr("; 1 truncated to 4 and 2 tokens"));
}

TEST(JsonLines, BadPairsAreNamed) {
  const auto refusal = [](const std::string& line) -> std::string {
    const ScratchFolder scratch;
    DataConfig config = lines_config(scratch, line, 4);
    config.target_length = 3;
    return thrown_by<InputError>([&] { open_dataset(config, 256); });
  };
  EXPECT_THAT(refusal(R"({"text": "ab"})"), HasSubstr(":1: the object has no prompt"));
  EXPECT_THAT(refusal(R"({"prompt": "", "completion": "a"})"), HasSubstr("the prompt is empty"));
  EXPECT_THAT(refusal(R"({"prompt": "a", "completion": ""})"), HasSubstr("the completion is empty"));
  EXPECT_THAT(refusal(R"({"prompt": "abcde", "completion": "a"})"),
              HasSubstr("the prompt has 5 tokens, more than data.sequence_length 4"));
  EXPECT_THAT(refusal(R"({"prompt": "a", "completion": "abcd"})"),
              HasSubstr("the completion has 4 tokens, more than data.target_length 3"));
}

// --- Lines that can't be trained on ---

TEST(JsonLines, BadLinesAreSkippedAndCountedByChoice) {
  const ScratchFolder scratch;
  DataConfig config = lines_config(scratch, R"({"text": "ab"}
{"text": 1}
{"text": "abcdefghij"}
{"prompt": "abcdefgh", "completion": "i"}
{"text": "xyz"}
{"prompt": "a", "completion": ""})",
                                   6);
  config.bad_lines = "skip";
  const auto skipped = open_dataset(config, 256);
  ASSERT_EQ(skipped->size(), 1);
  EXPECT_EQ(read_sample(*skipped, 0),
            (Numbers{'a', 'x', 'y', 0, 0, 0, 'b', 'y', 'z', -100, -100, -100, 0, 1, 1, 2, 2, 2}));
  EXPECT_EQ(skipped->summary(),
            "2 lines with 5 tokens (2.5 per line, at most 3), 3 of them in the loss; 1 samples, 50.0% "
            "full; 4 skipped, the first: " +
                (scratch / "lines.jsonl") + ":2: 'text' is not a string; expected a string");
  // Long lines are truncated, unless no trained token is left.
  config.bad_lines = "cut";
  const auto truncated = open_dataset(config, 256);
  ASSERT_EQ(truncated->size(), 3);
  EXPECT_EQ(read_sample(*truncated, 1),
            (Numbers{'a', 'b', 'c', 'd', 'e', 'f', 'b', 'c', 'd', 'e', 'f', 'g', 0, 0, 0, 0, 0, 0}));
  EXPECT_THAT(truncated->summary(), HasSubstr("; 1 truncated to 7 tokens; 3 skipped"));
  config.path = scratch.write("bad.jsonl", "{\"prompt\": \"abcdefgh\", \"completion\": \"i\"}\n[]\n");
  try {
    open_dataset(config, 256);
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("all 2 lines were skipped, the first: "));
    EXPECT_THAT(error.what(),
                HasSubstr("bad.jsonl:1: the document has 9 tokens, but the loss covers none of the first 7"));
  }
}

TEST(JsonLines, TheLossCanBeOnAll) {
  const ScratchFolder scratch;
  DataConfig config = lines_config(scratch, R"({"prompt": "ab", "completion": "cd"})", 4);
  config.loss_on = "all";
  EXPECT_EQ(read_sample(*open_dataset(config, 256), 0), (Numbers{'a', 'b', 'c', 0, 'b', 'c', 'd', -100, 0, 0, 0, 1}));
}

// Many lines in two files, read by several threads, give the samples of the lines in order.
TEST(JsonLines, SamplesAreFoundAnywhereInManyFiles) {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "lines");
  std::string all, files[2];
  for (int i = 0; i < 6000; ++i) {
    const std::string line = "{\"text\": \"" + std::string(1 + i % 7, static_cast<char>('a' + i % 26)) + "\"}\n";
    const std::string bad = i % 5 == 0 ? "{\"text\": \"\"}\n\n" : "";
    all += line + bad;
    files[i < 2500 ? 0 : 1] += line + bad;
  }
  DataConfig config = lines_config(scratch, all, 20);
  config.bad_lines = "skip";
  const auto one = open_dataset(config, 256);
  scratch.write("lines/a.jsonl", files[0]);
  scratch.write("lines/b.jsonl", files[1]);
  config.path = scratch / "lines";
  const auto two = open_dataset(config, 256);
  ASSERT_EQ(one->size(), two->size());
  ASSERT_GT(one->size(), 500);
  std::int64_t documents = 0;
  for (std::int64_t i = one->size(); i-- > 0;) {
    const Numbers numbers = read_sample(*one, i);
    ASSERT_EQ(numbers, read_sample(*two, i)) << i;
    documents += *std::max_element(numbers.begin() + 40, numbers.end() - (numbers[59] == numbers[58] ? 1 : 0)) + 1;
  }
  EXPECT_GE(documents, 5000);
}

TensorDict as_batch(const Dataset& dataset) {
  const std::int64_t samples = dataset.size(), length = dataset.sequence_length();
  TensorDict batch;
  for (const auto& entry : dataset.entries()) {
    torch::Tensor full = torch::empty({samples, length}, torch::kInt64);
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const Numbers numbers = read_sample(dataset, sample);
      std::copy_n(numbers.begin() + entry.first, length, full[sample].data_ptr<std::int64_t>());
    }
    batch.set(entry.name, full);
  }
  return batch;
}

LoraRun one_step(Config config, const TensorDict& batch) {
  config.model.config_json.replace(config.model.config_json.find("31"), 2, "128");
  config.schedule.microbatches = 1;
  config.lora = {};
  return on_layout<LoraRun>(config, [&](World& world) {
    Rig rig(world, config);
    const auto& mesh = rig.plugin->mesh();
    const Batch mine = replica_part(make_batch(batch), mesh.size(axis::kData), mesh.coordinate(axis::kData));
    LoraRun run;
    run.losses.push_back(
        *rig.booster.execute_pipeline(mine, rig.boosted, {.return_loss = true, .broadcast_loss = true}).loss);
    rig.boosted.optimizer->gradients().complete();
    run.gradients = rig.gradients();
    return run;
  });
}

TEST(JsonLines, PackedDocumentsHaveTheNumbersOfEachAlone) {
  const ScratchFolder scratch;
  const std::vector<std::string> lines = {R"({"text": "abc"})", R"({"prompt": "defg", "completion": "h"})",
                                          R"({"text": "ij"})", R"({"prompt": "kl", "completion": "mnopq"})",
                                          R"({"text": "rstuv"})"};
  std::string all, alone;
  for (const auto& line : lines) all += line + "\n";
  const TensorDict packed = as_batch(*open_dataset(lines_config(scratch, all, 8), 128));
  EXPECT_EQ(packed.at("labels").size(0), 3);
  // One data set per line, so that each document has a sample of its own.
  TensorDict apart;
  for (const auto& line : lines) {
    const TensorDict one = as_batch(*open_dataset(lines_config(scratch, line, 8), 128));
    for (const auto& [name, tensor] : one)
      apart.set(name, apart.contains(name) ? torch::cat({apart.at(name), tensor}) : tensor);
  }
  EXPECT_EQ(apart.at("labels").size(0), 5);
  const LoraRun expected = one_step(lora_config({}), apart);
  for (const LoraLayout& how :
       {LoraLayout{}, LoraLayout{.layout = {.pipeline = 2, .tensor = 2}, .sequence_parallel = true}}) {
    const LoraRun got = one_step(lora_config(how), packed);
    EXPECT_NEAR(got.losses[0], expected.losses[0], 1e-10);
    expect_close(expected.gradients, got.gradients);
  }
}

}  // namespace
}  // namespace gantry::testing
