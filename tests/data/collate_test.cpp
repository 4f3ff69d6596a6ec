// Data sets made from functions and from torch::data, and batches of samples of different lengths.
#include "gantry/data/collate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/samplers/sequential.h>
#include <torch/data/transforms/lambda.h>
#include <torch/data/transforms/stack.h>

#include "gantry/data/data_loader.h"
#include "gantry/data/function_dataset.h"
#include "gantry/data/torch_dataset.h"
#include "gantry/tensors/libtorch.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::int64_t length_of_text(std::int64_t index) { return 1 + index * 3 % 5; }  // 1, 4, 2, 5, 3, 1, ...

// Sample i has length_of_text(i) tokens i, and i as a number.
TensorDict text_sample(std::int64_t index) {
  return {{"input_ids", torch::full({length_of_text(index)}, index, torch::kInt64)},
          {"weight", torch::tensor(0.5 * static_cast<double>(index))}};
}

std::shared_ptr<const Dataset> texts(std::int64_t size) { return std::make_shared<FunctionDataset>(size, text_sample); }

DataLoaderOptions in_order(std::int64_t global_batch) {
  return {.global_batch = global_batch, .shuffle = false, .collate = pad_to_longest({{"input_ids", -1}})};
}

std::string text_of(const torch::Tensor& tensor) {
  std::string text;
  for (const auto& row : tensor.unbind()) {
    for (const auto& number : row.unbind()) text += std::to_string(number.item<std::int64_t>()) + " ";
    text += "| ";
  }
  return text;
}

TEST(Collate, PadsToTheLongestSampleOfTheBatch) {
  DataLoader loader(texts(5), in_order(2));
  EXPECT_EQ(text_of(loader.next().tensors.at("input_ids")), "0 -1 -1 -1 | 1 1 1 1 | ");
  const Batch second = loader.next();
  EXPECT_EQ(text_of(second.tensors.at("input_ids")), "2 2 -1 -1 -1 | 3 3 3 3 3 | ");
  EXPECT_TRUE(torch::equal(second.tensors.at("weight"), torch::tensor({1.0, 1.5}, torch::kFloat64)));
  EXPECT_EQ(second.tokens_per_sample, 0);  // it depends on the batch
  loader.seek(2);
  EXPECT_EQ(text_of(loader.next().tensors.at("input_ids")), "2 2 -1 -1 -1 | 3 3 3 3 3 | ");
}

TEST(Collate, ReplicasPadTheirOwnSamplesAndSomeHaveNone) {
  std::vector<std::string> parts;
  for (int replica = 0; replica < 4; ++replica) {
    DataLoader loader(texts(5), in_order(3));
    loader.distribute(4, replica);
    const Batch batch = loader.next();
    parts.push_back(text_of(batch.tensors.at("input_ids")));
    EXPECT_EQ(batch.global_samples, 3);
    EXPECT_EQ(batch.samples, replica < 3 ? 1 : 0);
    EXPECT_EQ(batch.tensors.at("weight").size(0), batch.samples);
  }
  EXPECT_THAT(parts, ElementsAre("0 | ", "1 1 1 1 | ", "2 2 | ", ""));
}

TEST(Collate, GetsTheSamplesOfAnyDataSetAndMayAddEntries) {
  class Tokens final : public Dataset {
   public:
    std::int64_t size() const override { return 3; }
    std::int64_t sequence_length() const override { return 2; }
    void read(std::int64_t index, std::int64_t* tokens) const override { std::fill_n(tokens, 3, index); }
  };
  DataLoaderOptions options{.global_batch = 2, .shuffle = false, .prefetch = 2};
  options.collate = [](const std::vector<TensorDict>& samples) -> TensorDict {
    std::vector<torch::Tensor> ids;
    for (const TensorDict& sample : samples) ids.push_back(sample.at("input_ids") * 10);
    return {{"ids", torch::stack(ids)}, {"count", torch::full({2}, 2)}};
  };
  DataLoader loader(std::make_shared<Tokens>(), options);
  const Batch batch = loader.next();
  EXPECT_EQ(text_of(batch.tensors.at("ids")), "0 0 | 10 10 | ");
  EXPECT_FALSE(batch.tensors.contains("labels"));
}

TEST(Collate, ARankThatNeedsOnlyShapesReadsTheSamples) {
  DataLoader loader(texts(5), in_order(2));
  loader.distribute(1, 0, /*reads=*/false);
  EXPECT_EQ(text_of(loader.next().tensors.at("input_ids")), "0 -1 -1 -1 | 1 1 1 1 | ");
}

TEST(Collate, WhatDoesNotFitIsNamed) {
  const auto reads = [](DataLoaderOptions options) {
    DataLoader loader(texts(5), options);
    return thrown_by([&] { loader.next(); });
  };
  EXPECT_THAT(reads({.global_batch = 2, .shuffle = false}),
              HasSubstr("data set entry 'input_ids': the tensor of sample 1 is int64 [4]; expected [1], the shape of "
                        "sample 0; set DataLoaderOptions::collate"));
  EXPECT_THAT(reads({.global_batch = 2, .shuffle = false, .collate = pad_to_longest({})}),
              HasSubstr("batch entry 'input_ids': the samples are int64 [1] and int64 [4]; expected one shape"));
  EXPECT_THAT(reads({.global_batch = 2,
                     .collate =
                         [](const auto&) {
                           return TensorDict{{"x", torch::zeros({3})}};
                         }}),
              HasSubstr("DataLoaderOptions::collate: the entry 'x' is float32 [3]; expected [2 samples, ...]"));
  EXPECT_THAT(thrown_by([] { FunctionDataset(0, text_sample); }), HasSubstr("it has 0 samples"));
  EXPECT_THAT(thrown_by([] {
                FunctionDataset(2, [](std::int64_t index) -> TensorDict {
                  return {{"x", torch::zeros({2}, index == 0 ? torch::kFloat32 : torch::kInt64)}};
                }).sample(1);
              }),
              HasSubstr("the tensor of sample 1 is int64 [2]; expected float32 on the CPU, as in sample 0"));
}

// Example i: the number i as a row of three, and whether it is odd.
class Numbered : public torch::data::datasets::Dataset<Numbered> {
 public:
  torch::data::Example<> get(std::size_t index) override {
    const auto number = static_cast<std::int64_t>(index);
    return {torch::full({3}, number, torch::kFloat32), torch::tensor(number % 2)};
  }
  torch::optional<std::size_t> size() const override { return 6; }
};

TEST(TorchDataset, IsReadByTheLoader) {
  const auto doubled = torch::data::transforms::Lambda<torch::data::Example<>>([](torch::data::Example<> example) {
    example.data *= 2;
    return example;
  });
  DataLoader loader(from_torch(Numbered().map(doubled), "pixels"), {.global_batch = 4, .shuffle = false});
  loader.distribute(2, 1);
  const Batch batch = loader.next();
  EXPECT_EQ(loader.samples(), 6);
  EXPECT_TRUE(torch::equal(batch.tensors.at("pixels"), torch::tensor({{4., 4., 4.}, {6., 6., 6.}}, torch::kFloat32)));
  EXPECT_TRUE(torch::equal(batch.tensors.at("labels"), torch::tensor({0, 1})));
}

template <class Set>
auto sequential(Set set) {
  return torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(std::move(set), /*batch_size=*/4);
}

std::vector<double> pixels_of(SampleStream& stream) {
  std::vector<double> pixels;
  while (const auto sample = stream.next()) pixels.push_back(sample->at("pixels")[0].item<double>());
  return pixels;
}

TEST(TorchLoader, IsAStreamOfItsSamples) {
  const StreamSource single = from_torch_loader([](int) { return sequential(Numbered()); }, 1, "pixels");
  const auto whole = pixels_of(*single.open(0));
  EXPECT_EQ(whole, (std::vector<double>{0, 1, 2, 3, 4, 5}));
  const StreamSource stacked = from_torch_loader(
      [](int) { return sequential(Numbered().map(torch::data::transforms::Stack<>())); }, 1, "pixels");
  EXPECT_EQ(pixels_of(*stacked.open(0)), whole);
  const auto begun = stacked.open(0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(begun->next()->at("pixels").dim(), 1);
  const auto resumed = stacked.open(0);
  resumed->load_state(begun->state());
  EXPECT_EQ(pixels_of(*resumed), std::vector<double>(whole.begin() + 3, whole.end()));
}

}  // namespace
}  // namespace gantry::testing
