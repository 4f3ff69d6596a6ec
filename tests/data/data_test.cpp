#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <set>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/data/data_loader.h"

namespace gantry {
namespace {

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("gantry_data_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }
  std::filesystem::path folder_;
};

std::string fault_of(const DataConfig& config, std::int64_t vocabulary) {
  try {
    open_dataset(config, vocabulary);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(Files, TextReadsBytesOfFilesFoldersAndGlobs) {
  write("b.txt", "defgh");
  write("a.txt", "abc");
  for (const std::string& path : {folder_.string(), (folder_ / "*.txt").string()}) {
    const auto data = open_dataset({.format = "text", .path = path, .sequence_length = 3}, 256);
    ASSERT_EQ(data->size(), 2);
    std::int64_t tokens[4];
    data->read(1, tokens);
    EXPECT_EQ(std::vector<std::int64_t>(tokens, tokens + 4), (std::vector<std::int64_t>{'d', 'e', 'f', 'g'}));
  }
}

TEST_F(Files, BadDataIsRefusedWithTheArithmetic) {
  const std::string odd = write("odd.bin", "abc"), tokens = write("tokens.bin", std::string("\x01\x00\x33\x01", 4)),
                    text = write("text.txt", "abc");
  EXPECT_NE(fault_of({.format = "tokens", .path = odd}, 256).find("has 3 bytes"), std::string::npos);
  EXPECT_NE(fault_of({.format = "tokens", .path = tokens, .sequence_length = 1}, 256)
                .find("token 307 at place 1 is outside the model's vocabulary of 256"),
            std::string::npos);
  EXPECT_NE(fault_of({.format = "text", .path = text, .sequence_length = 8}, 256)
                .find("has 3 tokens; expected at least sequence_length 8 + 1 = 9"),
            std::string::npos);
  EXPECT_NE(fault_of({.format = "text", .path = text, .sequence_length = 2}, 100).find("vocabulary is 100"),
            std::string::npos);
  EXPECT_NE(fault_of({.format = "text", .path = (folder_ / "none*").string()}, 256).find("matches no file"),
            std::string::npos);
}

TEST(Sampler, EverySampleOnceAnEpochInAnotherOrder) {
  for (const std::int64_t size : {1, 2, 3, 5, 17, 64, 1000, 1025}) {
    const Sampler sampler(size, true, 9);
    std::vector<std::int64_t> first, second;
    for (std::int64_t i = 0; i < size; ++i)
      first.push_back(sampler.sample(i)), second.push_back(sampler.sample(size + i));
    EXPECT_EQ(std::set(first.begin(), first.end()).size(), static_cast<std::size_t>(size));
    EXPECT_EQ(std::set(second.begin(), second.end()).size(), static_cast<std::size_t>(size));
    if (size > 10) EXPECT_NE(first, second);
  }
  EXPECT_EQ(Sampler(5, false, 1).sample(12), 2);
}

TEST(Acceptance, A4SamplerIsDisjointOverReplicasAndCoversTheDataset) {
  for (const int replicas : {1, 2, 3})
    for (const bool drop : {false, true}) {
      std::multiset<std::int64_t> all;
      std::size_t each = 0;
      for (int replica = 0; replica < replicas; ++replica) {
        DistributedSampler sampler(
            {.dataset_size = 20, .replicas = replicas, .replica = replica, .seed = 4, .drop_last = drop});
        const auto epoch = sampler.indices();
        EXPECT_EQ(epoch,
                  DistributedSampler(
                      {.dataset_size = 20, .replicas = replicas, .replica = replica, .seed = 4, .drop_last = drop})
                      .indices());
        each = epoch.size();
        all.insert(epoch.begin(), epoch.end());
        sampler.set_epoch(1);
        EXPECT_NE(sampler.indices(), epoch);
      }
      EXPECT_EQ(each, static_cast<std::size_t>(drop ? 20 / replicas : (20 + replicas - 1) / replicas));
      if (!drop) EXPECT_EQ(std::set(all.begin(), all.end()).size(), 20u);
      if (drop) EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size());
    }
}

TEST_F(Files, ReplicasBatchesJoinToTheGlobalOne) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const std::shared_ptr<const Dataset> data =
      open_dataset({.format = "text", .path = write("t", bytes), .sequence_length = 4}, 256);
  DataLoader whole(data, {.global_batch = 7});
  for (int step = 0; step < 20; ++step) {
    std::vector<torch::Tensor> parts;
    for (int replica = 0; replica < 3; ++replica) {
      DataLoader loader(data, {.global_batch = 7});
      loader.distribute(3, replica);
      const Batch batch = loader.batch(step);
      EXPECT_EQ(batch.global_samples, 7);
      parts.push_back(batch.tensors.at("input_ids"));
    }
    EXPECT_TRUE(torch::equal(torch::cat(parts), whole.batch(step).tensors.at("input_ids")));
  }
  std::int64_t seen = 0;
  for (auto& batch : whole) seen += batch.samples;
  EXPECT_EQ(seen, whole.steps() * 7);
}

}  // namespace
}  // namespace gantry
