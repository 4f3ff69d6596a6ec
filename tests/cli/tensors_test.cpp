// `gantry train` for families that are not trained on plain text, over layouts: samples of a safetensors file, and
// pairs of texts.
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

namespace gantry::testing {
namespace {

const std::string kVit =
    "{policy: vit, config: {hidden_size: 12, intermediate_size: 16, num_hidden_layers: 2, num_attention_heads: 2, "
    "image_size: 8, patch_size: 4, num_channels: 3, num_labels: 5}}";
const std::string kT5 =
    "{policy: t5, config: {d_model: 12, d_kv: 6, d_ff: 16, num_layers: 2, num_decoder_layers: 2, num_heads: 2, "
    "vocab_size: 40, dropout_rate: 0.0}}";
const std::string kBytesT5 =
    "{policy: t5, config: {d_model: 12, d_kv: 6, d_ff: 16, num_layers: 2, num_decoder_layers: 2, num_heads: 2, "
    "vocab_size: 256, dropout_rate: 0.0}}";
const std::string kBert =
    "{policy: bert, config: {architectures: [BertForTokenClassification], hidden_size: 12, intermediate_size: 16, "
    "num_hidden_layers: 2, num_attention_heads: 2, vocab_size: 40, max_position_embeddings: 16, num_labels: 3, "
    "hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0}}";

torch::Tensor drawn_ids(std::int64_t tokens, std::int64_t below, std::int64_t step) {
  return torch::arange(10 * tokens).mul(step).remainder(below).view({10, tokens});
}

class TrainsOnTensors : public ::testing::Test {
 protected:
  // Runs `gantry train` with training and held-out data in `path`. `data`: the other keys of the data section.
  Outcome train(const std::string& model, const std::string& path, const std::string& data, const std::string& sets) {
    const std::string config = scratch_.write(
        "train.yaml", fmt::format("model: {}\nprecision: float64\ntrain: {{steps: 4}}\noptimizer: {{lr: 1.0e-2}}\n"
                                  "comm: {{threads_per_rank: 1}}\noutput: {}\n"
                                  "evaluation: {{path: {}}}\ndata: {{path: {}, batch_size: 4, {}}}\n",
                                  model, scratch_ / "run", path, path, data));
    return run_program(gantry_program() + " train " + config + " " + sets, 60);
  }

  std::string written(const TensorDict& samples) {
    write_safetensors(scratch_ / "samples.safetensors", samples);
    return scratch_ / "samples.safetensors";
  }

  // Returns for each line of metrics.jsonl the loss, or the held-out loss with accuracy and F1 if they exist.
  std::vector<double> numbers(const std::string& model, const std::string& path, const std::string& data,
                              const std::string& sets = "") {
    const Outcome run = train(model, path, data, sets);
    EXPECT_EQ(run.exit_code, 0) << sets << "\n" << run.err;
    std::vector<double> all;
    std::istringstream file(read_file(scratch_ / "run/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) {
      const auto values = nlohmann::json::parse(line);
      for (const char* key : {"loss", "eval_loss", "accuracy", "f1"})
        if (values.contains(key)) all.push_back(values[key]);
    }
    return all;
  }

  // `evaluated`: numbers of the evaluation after the four steps.
  void expect_equal_layouts(const std::string& model, const std::string& path, const std::string& data,
                            std::size_t evaluated) {
    const auto expected = numbers(model, path, data);
    ASSERT_EQ(expected.size(), 4 + evaluated);
    EXPECT_GT(std::abs(expected[0] - expected[1]), 1e-6);
    for (const char* layout : {"--set parallel.pipeline=2 --set schedule.microbatches=2",
                               "--set parallel.tensor=2 --set parallel.data=2 --set data.prefetch=0"}) {
      const auto actual = numbers(model, path, data, layout);
      ASSERT_EQ(actual.size(), expected.size()) << layout;
      for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-10) << layout;
    }
  }

  ScratchFolder scratch_;
};

// A held-out folder without the first classes has the labels of the training data, and an unknown class is named.
void expect_one_table_in(const std::string& program, const ScratchFolder& scratch, const std::string& set) {
  const auto run = [&](const std::string& sets) {
    return run_program(program + " train " + (scratch / "train.yaml") + " " + sets, 60);
  };
  std::filesystem::create_directories(scratch / "held/class2");
  std::filesystem::copy(set + "/class2", scratch / "held/class2", std::filesystem::copy_options::recursive);
  const std::string saved = scratch / "named", held = " --set evaluation.path=" + (scratch / "held");
  // Trained until the pictures are known by heart: accuracy 1 with the right labels, and 0 with labels from 0.
  const Outcome trained =
      run("--set train.steps=60 --set optimizer.lr=0.01 --set checkpoint.every=0 --set "
          "data.crop=center --set data.flip=0 --set checkpoint.path=" +
          saved + held);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.out.find("accuracy 1.0000"), std::string::npos) << trained.out;
  ASSERT_EQ(run_program(program + " checkpoint export " + saved + " " + (scratch / "named_out")).exit_code, 0);
  const auto config = nlohmann::json::parse(read_file(scratch / "named_out/config.json"));
  EXPECT_EQ(config["id2label"], nlohmann::json::parse(R"({"0": "class0", "1": "class1", "2": "class2", "3": "LABEL_3",
                                                          "4": "LABEL_4"})"));
  EXPECT_EQ(config["label2id"]["class2"], 2);
  // By the table of config.json: another order.
  const Outcome stated =
      run("--set train.steps=1 --set 'model.config.label2id={class2: 0, class1: 1, class0: 2}' --set "
          "model.config.num_labels=null" +
          held);
  EXPECT_EQ(stated.exit_code, 0) << stated.err;
  std::filesystem::rename(scratch / "held/class2", scratch / "held/wasp");
  const Outcome unknown = run(held);
  EXPECT_EQ(unknown.exit_code, 4) << unknown.err;
  EXPECT_NE(unknown.err.find("evaluation.path: '" + (scratch / "held") +
                             "' has the subdirectory 'wasp', which is not a "
                             "class of the model; expected class0, class1, class2, LABEL_3, LABEL_4; rename"),
            std::string::npos)
      << unknown.err;
}

TEST_F(TrainsOnTensors, Images) {
  const torch::Tensor pixels = torch::arange(10 * 3 * 64, torch::kFloat32).mul(0.37).sin().view({10, 3, 8, 8});
  expect_equal_layouts(kVit, written({{"pixel_values", pixels}, {"labels", torch::arange(10).remainder(5)}}),
                       "format: tensors", 3);
}

// Two passes and more over nine pictures of three classes; and the same with a stop in their midst.
TEST_F(TrainsOnTensors, PicturesInFolders) {
  const std::string pictures = GANTRY_SOURCE_DIR "/tests/golden/images/";
  int number = 0;
  for (const char* file : {"rgb.png", "rgb.jpg", "grey.png", "cmyk.jpg", "palette.png", "alpha.png", "deep.png",
                           "bits.png", "progressive.jpg"}) {
    const std::string folder = scratch_ / fmt::format("set/class{}", number % 3);
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file(pictures + file, fmt::format("{}/{}_{}", folder, number++, file));
  }
  const std::string path = scratch_ / "set", data = "format: images";
  expect_equal_layouts(kVit, path, data, 3);
  expect_equal_layouts(kVit, path,
                       data +
                           ", image_size: 8, resize: 12, interpolation: bicubic, crop_scale: [0.5, 1], flip: 0.25, "
                           "mean: [0.4, 0.5, 0.6], std: [0.2, 0.3, 0.4]",
                       3);
  const Outcome wrong = train(kVit, path, data + ", image_size: 16", "");
  EXPECT_EQ(wrong.exit_code, 3);
  EXPECT_NE(wrong.err.find("data.image_size: 16 x 16 pixels do not fit the model, which reads 8 x 8"),
            std::string::npos)
      << wrong.err;
  const std::string steps = " --set train.steps=6 --set checkpoint.path=" + (scratch_ / "saved");
  const auto full = numbers(kVit, path, data, "--set train.steps=6");
  numbers(kVit, path, data, steps + " --set train.max_minutes=1e-9");  // one step
  std::filesystem::remove(scratch_ / "run/metrics.jsonl");
  auto resumed = numbers(kVit, path, data, steps + " --set checkpoint.resume=auto --set parallel.pipeline=2");
  ASSERT_GE(full.size(), resumed.size());
  ASSERT_GE(resumed.size(), 8u);
  for (std::size_t i = 1; i <= resumed.size(); ++i)
    EXPECT_NEAR(resumed[resumed.size() - i], full[full.size() - i], 1e-10) << i;
  ASSERT_EQ(train(kVit, path, data, "--set train.steps=1").exit_code, 0);  // writes the configuration
  expect_one_table_in(gantry_program(), scratch_, path);
  scratch_.write("set/class1/damaged.png", "\x89PNG\r\n\x1a\nand no more");
  const Outcome run = train(kVit, path, data + ", prefetch: 0", "");
  EXPECT_EQ(run.exit_code, 4);
  EXPECT_NE(run.err.find("set/class1/damaged.png: the PNG image cannot be decoded"), std::string::npos) << run.err;
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  const Outcome other = train(kBert, path, data, "");
  EXPECT_EQ(other.exit_code, 3);
  EXPECT_NE(other.err.find("images do not fit a model that is trained on classes"), std::string::npos) << other.err;
}

TEST_F(TrainsOnTensors, PairsOfTextsOfTwoLengths) {
  torch::Tensor labels = drawn_ids(5, 39, 11);
  labels.narrow(1, 3, 2).narrow(0, 0, 4).fill_(-100);
  torch::Tensor mask = torch::ones({10, 7}, torch::kInt64);
  mask.narrow(1, 5, 2).narrow(0, 2, 3).fill_(0);
  expect_equal_layouts(kT5, written({{"input_ids", drawn_ids(7, 39, 7)}, {"labels", labels}, {"attention_mask", mask}}),
                       "format: tensors, sequence_length: 7", 1);
}

TEST_F(TrainsOnTensors, ClassesOfTokens) {
  expect_equal_layouts(kBert,
                       written({{"input_ids", drawn_ids(7, 39, 7).to(torch::kInt32)}, {"labels", drawn_ids(7, 3, 5)}}),
                       "format: tensors, sequence_length: 7", 3);
}

// All counted labels are of one class, so after some steps every prediction is right.
TEST_F(TrainsOnTensors, AccuracyIsOfCountedLabels) {
  torch::Tensor labels = torch::ones({10, 7}, torch::kInt64);
  labels.narrow(1, 0, 3).fill_(-100);
  const std::string path = written({{"input_ids", drawn_ids(7, 39, 7)}, {"labels", labels}});
  const std::string data = "format: tensors, sequence_length: 7";
  const auto learned = numbers(kBert, path, data, "--set train.steps=30 --set parallel.data=3");
  EXPECT_EQ(learned.back(), 1);
}

// Lines, and the tensors that they have to become.
TEST_F(TrainsOnTensors, PromptsAndCompletions) {
  std::string lines;
  torch::Tensor ids = torch::zeros({10, 6}, torch::kInt64), labels = torch::full({10, 4}, -100, torch::kInt64);
  for (int i = 0; i < 10; ++i) {
    std::string prompt, completion;
    for (int token = 0; token < 2 + i % 5; ++token) prompt += static_cast<char>('a' + (i * 7 + token * 3) % 26);
    for (int token = 0; token < 1 + i % 4; ++token) completion += static_cast<char>('a' + (i * 5 + token) % 26);
    lines += fmt::format("{{\"prompt\": \"{}\", \"completion\": \"{}\"}}\n", prompt, completion);
    for (std::size_t token = 0; token < prompt.size(); ++token) ids[i][token] = prompt[token];
    for (std::size_t token = 0; token < completion.size(); ++token) labels[i][token] = completion[token];
  }
  const std::string model = kBytesT5, path = scratch_.write("lines.jsonl", lines);
  const std::string data = "format: jsonl, tokenizer: bytes, sequence_length: 6, target_length: 4";
  expect_equal_layouts(model, path, data, 1);
  const std::string tensors =
      written({{"input_ids", ids}, {"labels", labels}, {"attention_mask", (ids > 0).to(torch::kInt64)}});
  EXPECT_EQ(numbers(model, path, data), numbers(model, tensors, "format: tensors, sequence_length: 6"));
}

TEST_F(TrainsOnTensors, FaultsAreOneLine) {
  struct Fault {
    TensorDict samples;
    std::string data;
    int exit_code;
    std::string said;
  };
  const torch::Tensor ids = drawn_ids(7, 39, 7);
  const Fault faults[] = {
      {{{"input_ids", ids}, {"labels", ids}}, "", 3, "the value is 128, but the samples have 7 tokens; expected 7"},
      {{{"input_ids", ids}, {"targets", ids}}, ", sequence_length: 7", 4, "it has input_ids, targets, but no 'labels'"},
      {{{"pixel_values", ids.to(torch::kFloat32)}, {"labels", ids}}, "", 4, "but no 'input_ids'"},
      {{{"input_ids", ids}, {"labels", ids.narrow(0, 0, 9)}}, ", sequence_length: 7", 4, "'labels' is int64 [9, 7]"},
      {{{"input_ids", ids}, {"labels", ids}}, ", sequence_length: 7, tokenizer: x", 3, "data.tokenizer"},
      {{{"input_ids", ids}, {"labels", ids}, {"attention_mask", torch::ones({10, 8}, torch::kInt64)}},
       ", sequence_length: 7",
       4,
       "attention_mask is int64 [10, 8], but input_ids is int64 [10, 7]; expected the shape [10, 7]"},
      {{{"input_ids", ids}, {"labels", ids.to(torch::kFloat32)}},
       ", sequence_length: 7",
       4,
       "labels is float32 [10, 7]; expected integers"},
      {{{"input_ids", ids}, {"labels", ids}, {"document_ids", ids}},
       ", sequence_length: 7",
       4,
       "the file has an entry 'document_ids' that the model does not read"},
  };
  for (const auto& [samples, data, exit_code, said] : faults) {
    const Outcome run = train(kT5, written(samples), "format: tensors" + data, "");
    EXPECT_EQ(run.exit_code, exit_code) << said << run.err;
    EXPECT_NE(run.err.find(said), std::string::npos) << run.err << "\n not " << said;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
  const std::string line = scratch_.write("line.jsonl", R"({"prompt": "a", "completion": "b"})");
  const Outcome other = train(kBert, line, "format: jsonl, target_length: 4, sequence_length: 8", "");
  EXPECT_EQ(other.exit_code, 3);
  EXPECT_NE(
      other.err.find(
          "jsonl does not fit BertForTokenClassification; expected a model with ForSequenceClassification, or tensors"),
      std::string::npos)
      << other.err;
}

}  // namespace
}  // namespace gantry::testing
