// Memory that is offloaded to the host, and the memory that only autograd holds.
#include "gantry/tensors/moved_memory.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/saved_tensors.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kWidth = 64;

struct Chain {
  std::vector<torch::Tensor> weights;

  Chain() {
    for (int i = 0; i < 4; ++i)
      weights.push_back(torch::sin(torch::arange(kWidth * kWidth, torch::kFloat64) + i).view({kWidth, kWidth}));
    for (auto& weight : weights) weight.requires_grad_();
  }
  torch::Tensor loss(torch::Tensor x) const {
    for (const auto& weight : weights) x = torch::tanh(torch::mm(x, weight));
    return x.sum();
  }
};

torch::Tensor some_rows() { return torch::cos(torch::arange(8 * kWidth, torch::kFloat64)).view({8, kWidth}); }

std::vector<std::string> contents(const std::vector<c10::Storage>& storages) {
  std::vector<std::string> each;
  for (const auto& storage : storages) each.emplace_back(static_cast<const char*>(storage.data()), storage.nbytes());
  return each;
}

bool holds(const std::vector<c10::Storage>& storages, const torch::Tensor& tensor) {
  for (const auto& storage : storages)
    if (storage.is_alias_of(tensor.storage())) return true;
  return false;
}

TEST(MovedMemory, ComesBackUnderTheSameTensors) {
  OffloadBufferPool rooms(torch::kCPU);
  torch::Tensor first = torch::arange(1000, torch::kFloat64), second = torch::arange(7, torch::kFloat32);
  const torch::Tensor view = first.narrow(0, 10, 20), expected = first.clone();
  for (int round = 0; round < 3; ++round) {
    MovedMemory moved(rooms, {first.storage(), second.storage()});
    EXPECT_GE(moved.bytes(), 1000 * 8 + 7 * 4);
    moved.start_out();
    for (int call = 0; call < round; ++call) moved.start_in();  // wait() makes up for a missing one
    moved.wait();
    moved.wait();
    EXPECT_TRUE(torch::equal(first, expected));
    EXPECT_TRUE(torch::equal(second, torch::arange(7, torch::kFloat32)));
    EXPECT_TRUE(view.is_alias_of(first) && torch::equal(view, expected.narrow(0, 10, 20)));
  }
}

TEST(MovedMemory, IsNotThereMeanwhile) {
  OffloadBufferPool rooms(torch::kCPU);
  torch::Tensor tensor = torch::ones({1000}, torch::kFloat64);
  MovedMemory(rooms, {tensor.storage()}).start_out();  // the destructor waits for the copy
  EXPECT_EQ(tensor.storage().nbytes(), 0u);
  try {
    tensor.add(1);
    FAIL() << "it was read";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("memory is offloaded to the host"), std::string::npos) << error.what();
  }
}

TEST(SavedTensors, AreWhatNobodyElseHolds) {
  const Chain chain;
  const torch::Tensor input = some_rows();
  const auto saved = std::make_shared<SavedTensors>();
  torch::Tensor loss;
  {
    const SavedTensorsScope scope(saved);
    loss = chain.loss(input);
  }
  auto storages = saved->held_by_autograd_alone(1);
  EXPECT_EQ(storages.size(), 4u);  // the outputs of tanh
  EXPECT_FALSE(holds(storages, input));
  for (const auto& weight : chain.weights) EXPECT_FALSE(holds(storages, weight));
  EXPECT_TRUE(saved->held_by_autograd_alone(std::size_t{1} << 20).empty());

  OffloadBufferPool rooms(torch::kCPU);
  const auto before = contents(storages);
  MovedMemory moved(rooms, storages);
  moved.start_out();
  moved.start_in();
  moved.wait();
  EXPECT_TRUE(contents(storages) == before);
  storages.clear();
  loss.backward();
  const Chain other;
  other.loss(input).backward();
  for (std::size_t i = 0; i < 4; ++i) {
    // Not bitwise identical: two runs of a matrix multiplication may choose different kernels, also in
    // LibTorch alone.
    const double apart = (chain.weights[i].grad() - other.weights[i].grad()).abs().max().item<double>();
    EXPECT_LT(apart, 1e-12) << "weight " << i;
  }
  EXPECT_TRUE(saved->held_by_autograd_alone(1).empty());  // the backward has freed them
}

TEST(SavedTensors, AreThoseOfTheScopeAlone) {
  const Chain chain;
  const auto saved = std::make_shared<SavedTensors>(), inner = std::make_shared<SavedTensors>();
  const torch::Tensor before = chain.loss(some_rows());
  torch::Tensor within;
  {
    const SavedTensorsScope scope(saved);
    {
      const SavedTensorsScope none(nullptr);
      within = chain.loss(some_rows());
    }
    const SavedTensorsScope other(inner);
  }
  const torch::Tensor after = chain.loss(some_rows());
  EXPECT_TRUE(saved->held_by_autograd_alone(1).empty());
  EXPECT_TRUE(inner->held_by_autograd_alone(1).empty());
}

}  // namespace
}  // namespace gantry::testing
