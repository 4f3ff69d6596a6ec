// The loader: its position, prefetched batches, ranks that do not read data, and a shorter last batch.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <mutex>
#include <thread>

#include "gantry/core/error.h"
#include "gantry/data/data_loader.h"
#include "gantry/data/scalar_type.h"
#include "gantry/data/tensor_dataset.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/memory_meter.h"

namespace gantry {
namespace {

using ::testing::HasSubstr;

// Every token of sample i is i. Sample `broken` cannot be read.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::int64_t size, std::int64_t broken = -1) : size_(size), broken_(broken) {}
  std::int64_t size() const override { return size_; }
  std::int64_t sequence_length() const override { return 3; }
  void read(std::int64_t index, std::int64_t* tokens) const override {
    if (++reads > most_reads) read_too_many = true;
    if (index == broken_) throw InputError("sample " + std::to_string(index) + " is broken");
    std::fill_n(tokens, 4, index);
  }
  mutable std::atomic<int> reads{0};
  mutable std::atomic<bool> read_too_many{false};
  std::atomic<int> most_reads{std::numeric_limits<int>::max()};

 private:
  std::int64_t size_, broken_;
};

std::vector<std::int64_t> samples_of(const Batch& batch) {
  const torch::Tensor first = batch.tensors.at("input_ids").select(1, 0).contiguous();
  return {first.data_ptr<std::int64_t>(), first.data_ptr<std::int64_t>() + first.size(0)};
}

// Returns the samples of `steps` global batches from `position` on, in the order of steps and replicas.
// Advances `position`.
std::vector<std::int64_t> run(const std::shared_ptr<const Dataset>& data, DataLoaderOptions options, int replicas,
                              int steps, std::int64_t& position) {
  std::vector<std::int64_t> seen;
  std::vector<DataLoader> loaders;
  for (int replica = 0; replica < replicas; ++replica) {
    loaders.emplace_back(data, options);
    loaders.back().distribute(replicas, replica);
    loaders.back().seek(position);
  }
  for (int step = 0; step < steps; ++step)
    for (auto& loader : loaders)
      for (const auto sample : samples_of(loader.next())) seen.push_back(sample);
  for (const auto& loader : loaders) EXPECT_EQ(loader.position(), loaders.front().position());
  position = loaders.front().position();
  return seen;
}

TEST(DataLoader, TheCursorGoesOnExactlyWithOtherBatchesAndReplicas) {
  const auto data = std::make_shared<Numbers>(101);
  for (const int prefetch : {0, 3}) {
    std::int64_t position = 0;
    std::vector<std::int64_t> seen;
    const auto go_on = [&](std::int64_t batch, int replicas, int steps) {
      for (const auto sample : run(data, {.global_batch = batch, .prefetch = prefetch}, replicas, steps, position))
        seen.push_back(sample);
    };
    go_on(8, 1, 3);   // 24
    go_on(4, 2, 3);   // 36
    go_on(10, 3, 2);  // 56: 36 is not a multiple of 10
    go_on(7, 2, 1);   // 63
    go_on(50, 4, 2);  // 163: beyond the end of the data
    EXPECT_EQ(position, 163);
    std::int64_t from_start = 0;
    EXPECT_EQ(seen, run(data, {.global_batch = 1}, 1, 163, from_start));
  }
}

TEST(DataLoader, PrefetchedBatchesAreTheSame) {
  const auto data = std::make_shared<Numbers>(50);
  DataLoader plain(data, {.global_batch = 6, .seed = 3});
  for (const int depth : {1, 2, 7}) {
    DataLoader ahead(data, {.global_batch = 6, .seed = 3, .prefetch = depth});
    plain.seek(0);
    for (int step = 0; step < 30; ++step) {
      const Batch expected = plain.next(), got = ahead.next();
      EXPECT_TRUE(torch::equal(got.tensors.at("labels"), expected.tensors.at("labels")));
      EXPECT_EQ(ahead.position(), plain.position());
    }
    ahead.seek(12);  // discards the prefetched batches
    EXPECT_EQ(samples_of(ahead.next()), samples_of(plain.batch(2)));
  }
}

TEST(DataLoader, AFaultIsReportedAtItsBatchAndAgain) {
  const auto data = std::make_shared<Numbers>(40, 17);
  for (const int prefetch : {0, 4}) {
    DataLoader loader(data, {.global_batch = 5, .shuffle = false, .prefetch = prefetch});
    for (int step = 0; step < 3; ++step) EXPECT_EQ(samples_of(loader.next()).front(), 5 * step);
    EXPECT_THROW(loader.next(), InputError);
    EXPECT_THROW(loader.next(), InputError);
    EXPECT_EQ(loader.position(), 15);
    loader.seek(20);
    EXPECT_EQ(samples_of(loader.next()).front(), 20);
  }
}

// A slow data set. Each read waits until `together` reads run at the same time.
class Together final : public Dataset {
 public:
  Together(std::int64_t size, int together, std::int64_t broken) : size_(size), together_(together), broken_(broken) {}
  std::int64_t size() const override { return size_; }
  std::int64_t sequence_length() const override { return 3; }
  bool is_slow() const override { return true; }
  void read(std::int64_t index, std::int64_t* tokens) const override {
    {
      std::unique_lock lock(mutex_);
      if (++reading_ >= together_) met_ = true;
      changed_.notify_all();
      if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return met_; })) alone_ = true;
    }
    if (index >= broken_) throw InputError("sample " + std::to_string(index) + " is broken");
    std::fill_n(tokens, 4, index);
  }
  bool read_alone() const { return alone_; }

 private:
  std::int64_t size_;
  int together_;
  std::int64_t broken_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int reading_ = 0;
  mutable bool met_ = false, alone_ = false;
};

TEST(DataLoader, WorkersReadTheSameSamplesAtTheSameTime) {
  const auto slow = std::make_shared<const Together>(40, 3, 40);
  const auto plain = std::make_shared<const Numbers>(40);
  std::int64_t one = 0, other = 0;
  EXPECT_EQ(run(slow, {.global_batch = 7, .seed = 5, .workers = 3}, 1, 9, one),
            run(plain, {.global_batch = 7, .seed = 5}, 1, 9, other));
  EXPECT_FALSE(slow->read_alone());
}

TEST(DataLoader, WorkersReportTheFirstFaultAndStop) {
  DataLoader loader(std::make_shared<const Together>(40, 2, 1), {.global_batch = 30, .shuffle = false, .workers = 2});
  try {
    loader.next();
    ADD_FAILURE() << "the broken samples were read";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "sample 1 is broken");
  }
}

TEST(DataLoader, PreparesNoMoreThanAskedForAndEndsAtOnce) {
  constexpr int kBatch = 10, kAhead = 3;
  const auto data = std::make_shared<Numbers>(1000);
  {
    DataLoader loader(data, {.global_batch = kBatch, .prefetch = kAhead});
    for (int taken = 1; taken <= 50; ++taken) {
      data->most_reads = kBatch * (taken + kAhead);
      loader.next();
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (data->reads < data->most_reads && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      EXPECT_EQ(data->reads, data->most_reads);
    }
  }
  EXPECT_FALSE(data->read_too_many) << "before they were asked for";
  for (int i = 0; i < 200; ++i) {
    DataLoader loader(data, {.global_batch = 2, .prefetch = 2});
    if (i % 2 == 0) loader.next();
  }
}

TEST(DataLoader, WhatIsPreparedCountsForTheRankThatAsks) {
  const MemoryMeter meter;
  {
    DataLoader loader(std::make_shared<Numbers>(100), {.global_batch = 50, .prefetch = 2});
    const Batch batch = loader.next();
    EXPECT_GE(meter.bytes(), 2 * 50 * 3 * 8);  // input_ids and labels of the batch, at least
  }
  EXPECT_EQ(meter.bytes(), 0);
}

TEST(DataLoader, ARankThatDoesNotReadOpensNothingAndKnowsTheShapes) {
  bool opened = false;
  const SampleSource source{next_token_entries(3), 3, [&](const OpenProgress&) {
                              opened = true;
                              return std::vector<WeightedDataset>{{std::make_shared<Numbers>(20), 1}};
                            }};
  DataLoader middle(source, {.global_batch = 7, .prefetch = 2, .keep_last = true}),
      first(source, {.global_batch = 7, .keep_last = true});
  middle.distribute(2, 1, /*reads=*/false);
  EXPECT_FALSE(opened);
  EXPECT_THROW(middle.steps(), UsageError);
  first.distribute(2, 1);
  EXPECT_TRUE(opened);
  middle.set_samples(first.samples());
  EXPECT_EQ(middle.steps(), 3);
  for (int step = 0; step < 4; ++step) {
    const Batch there = first.next(), here = middle.next();
    EXPECT_EQ(here.samples, there.samples);
    EXPECT_EQ(here.first_sample, there.first_sample);
    EXPECT_EQ(here.global_samples, step % 3 == 2 ? 6 : 7);
    EXPECT_EQ(here.tokens_per_sample, 3);
    for (const char* name : {"input_ids", "labels"}) {
      EXPECT_TRUE(here.tensors.at(name).is_meta());
      EXPECT_EQ(here.tensors.at(name).sizes(), there.tensors.at(name).sizes());
    }
    EXPECT_EQ(middle.position(), first.position());
  }
}

TEST(DataLoader, AnEpochMayEndWithAShorterBatch) {
  const auto data = std::make_shared<Numbers>(10);
  DataLoader loader(data, {.global_batch = 4, .shuffle = false, .keep_last = true});
  EXPECT_EQ(loader.steps(), 3);
  std::vector<std::int64_t> seen;
  for (auto& batch : loader)
    for (const auto sample : samples_of(batch)) seen.push_back(sample);
  EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(samples_of(loader.batch(2)), (std::vector<std::int64_t>{8, 9}));
  EXPECT_EQ(samples_of(loader.batch(3)), (std::vector<std::int64_t>{0, 1, 2, 3}));
  loader.distribute(3, 2);
  EXPECT_EQ(loader.batch(2).samples, 0);  // two samples for three replicas
  EXPECT_EQ(loader.batch(2).global_samples, 2);
  EXPECT_EQ(DataLoader(data, {.global_batch = 4, .steps = 2, .keep_last = true}).steps(), 2);
  EXPECT_EQ(DataLoader(data, {.global_batch = 4, .steps = 9, .keep_last = true}).steps(), 3);
  EXPECT_EQ(DataLoader(data, {.global_batch = 40, .keep_last = true}).batch(0).samples, 10);
}

class Pairs final : public Dataset {
 public:
  std::int64_t size() const override { return 1; }
  std::int64_t sequence_length() const override { return 3; }
  std::vector<SampleEntry> entries() const override { return {{"input_ids", 0, 3}, {"label", 3}}; }
  void read(std::int64_t, std::int64_t* numbers) const override { std::fill_n(numbers, 4, 1); }
};

TEST(DataLoader, EntriesAreAsTheDatasetSays) {
  const Batch batch = DataLoader(std::make_shared<Pairs>(), {.global_batch = 2}).next();
  EXPECT_EQ(batch.tensors.at("input_ids").sizes(), (torch::IntArrayRef{2, 3}));
  EXPECT_EQ(batch.tensors.at("label").sizes(), (torch::IntArrayRef{2}));
  const SampleSource mixed{
      next_token_entries(3), 3, [](const OpenProgress&) {
        return std::vector<WeightedDataset>{{std::make_shared<Numbers>(20), 1}, {std::make_shared<Pairs>(), 1}};
      }};
  EXPECT_THROW(DataLoader(mixed, {}).next(), UsageError);
}

// A sample is an image of [2, 3] real numbers, its brightness and a class.
class Pictures final : public Dataset {
 public:
  explicit Pictures(bool reads = true) : reads_(reads) {}
  std::int64_t size() const override { return 4; }
  std::int64_t sequence_length() const override { return 0; }
  std::vector<SampleEntry> entries() const override {
    return {{.name = "pixels", .first = 1, .length = 6, .type = NumberType::kFloat32, .shape = {2, 3}},
            {.name = "brightness", .type = NumberType::kFloat32},
            {.name = "class"}};
  }
  void read(std::int64_t index, std::int64_t* numbers) const override { numbers[0] = index; }
  void read_numbers(std::int64_t index, const NumberRow& row) const override {
    if (row.type() == NumberType::kInt64 || !reads_) return Dataset::read_numbers(index, row);
    auto* numbers = row.as<float>();
    for (int i = 0; i < 7; ++i) numbers[i] = static_cast<float>(index) + 0.125f * static_cast<float>(i);
  }

 private:
  bool reads_;
};

TEST(DataLoader, EntriesHaveTheirTypesAndShapes) {
  for (const bool reads : {true, false}) {
    DataLoader loader(std::make_shared<Pictures>(), {.global_batch = 2, .shuffle = false});
    loader.distribute(1, 0, reads);
    const TensorDict tensors = loader.batch(1).tensors;
    const torch::Tensor& pixels = tensors.at("pixels");
    EXPECT_EQ(pixels.sizes(), (torch::IntArrayRef{2, 2, 3}));
    EXPECT_EQ(pixels.scalar_type(), torch::kFloat32);
    EXPECT_EQ(tensors.at("brightness").sizes(), (torch::IntArrayRef{2}));
    EXPECT_EQ(tensors.at("class").scalar_type(), torch::kInt64);
    EXPECT_EQ(pixels.is_meta(), !reads);
    if (!reads) continue;
    EXPECT_EQ(pixels[1][1][2].item<float>(), 3.75f);
    EXPECT_EQ(tensors.at("brightness")[0].item<float>(), 2.0f);
    EXPECT_EQ(tensors.at("class")[1].item<std::int64_t>(), 3);
  }
  EXPECT_THROW(DataLoader(std::make_shared<Pictures>(false), {}).next(), UsageError);
  const SampleSource crooked{
      {{.name = "x", .length = 5, .type = NumberType::kFloat32, .shape = {2, 3}}}, 0, [](const OpenProgress&) {
        return std::vector<WeightedDataset>{{std::make_shared<Pictures>(), 1}};
      }};
  EXPECT_THROW(DataLoader(crooked, {}).next(), UsageError);
}

// Five samples of every dtype: a number each, a row, an image and an empty row. The values are read back
// unchanged.
TEST(TensorDataset, EveryTypeAndShapeGoesThrough) {
  TensorDict samples;
  for (const auto& facts : kNumberTypes) {
    const auto type = scalar_type_of(facts.type);
    EXPECT_EQ(dtype_name(type), facts.name);
    EXPECT_EQ(at::elementSize(type), facts.bytes) << facts.name;
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{5}, {5, 3}, {5, 2, 1, 2}, {5, 0}}) {
      const torch::Tensor numbers = torch::arange(c10::multiply_integers(shape)).view(shape);
      samples.set(fmt::format("{}_{}", facts.name, shape.size() == 2 && shape[1] == 0 ? 0 : shape.size()),
                  (facts.type == NumberType::kBool ? numbers % 3 : numbers).to(type));
    }
  }
  const auto data = std::make_shared<TensorDataset>(samples);
  for (const bool reads : {true, false}) {
    DataLoader loader(data, {.global_batch = 4, .shuffle = false, .keep_last = true});
    loader.distribute(2, 1, reads);
    loader.set_samples(5);
    const std::vector<std::pair<std::int64_t, std::int64_t>> places = {{2, 4},
                                                                       {5, 5}};  // the last batch has one sample
    for (std::size_t step = 0; step < places.size(); ++step) {
      const auto [begin, end] = places[step];
      const Batch batch = loader.next();
      EXPECT_EQ(batch.samples, end - begin);
      for (const auto& [name, full] : samples) {
        const torch::Tensor& part = batch.tensors.at(name);
        EXPECT_EQ(part.scalar_type(), full.scalar_type()) << name;
        EXPECT_EQ(part.sizes(), full.slice(0, begin, end).sizes()) << name;
        EXPECT_EQ(part.is_meta(), !reads) << name;
        if (reads) EXPECT_TRUE(torch::equal(part, full.slice(0, begin, end))) << name;
      }
    }
  }
}

TEST(TensorDataset, RefusesByName) {
  const auto said = [](const TensorDict& samples) -> std::string {
    try {
      TensorDataset dataset(samples);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(
      said({{"x", torch::ones({2}, torch::kComplexFloat)}}),
      HasSubstr("data set entry 'x': the entry is ComplexFloat [2]; expected one of bool, uint8, int8, int16, int32"));
  EXPECT_THAT(said({{"x", torch::ones({2})}, {"y", torch::ones({3})}}),
              HasSubstr("'y': the entry is float32 [3] on cpu"));
  EXPECT_THAT(said({{"x", torch::ones({0, 3})}}), HasSubstr("at least one sample"));
  EXPECT_THAT(said({}), HasSubstr("there are no tensors"));
  double number = 0;
  EXPECT_THROW(NumberRow(NumberType::kInt64, &number).as<double>(), UsageError);
  EXPECT_THROW(NumberRow(NumberType::kBool, &number).as<std::uint8_t>(), UsageError);
  EXPECT_EQ(static_cast<void*>(NumberRow(NumberType::kFloat16, &number).as<c10::Half>()), &number);
}

}  // namespace
}  // namespace gantry
