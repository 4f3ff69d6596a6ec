// The cache of a sequence that is continued: it has the right tokens, and allocates its memory once.
#include "gantry/nn/key_value_cache.h"

#include <gtest/gtest.h>
#include <set>

#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

using nn::KeyValueCache;

// [2 samples, 3 heads, tokens, 4]: every entry encodes its sample and token.
torch::Tensor tokens_from(std::int64_t first, std::int64_t count) {
  const torch::Tensor tokens = torch::arange(first, first + count, torch::kFloat64).view({1, 1, count, 1});
  const torch::Tensor samples = 1000 * torch::arange(2, torch::kFloat64).view({2, 1, 1, 1});
  return (tokens + samples).expand({2, 3, count, 4}).contiguous();
}

// The visible tokens must be `count` tokens from `first` on.
void expect_in_sight(const torch::Tensor& seen, std::int64_t first, std::int64_t count) {
  ASSERT_EQ(seen.size(2), count);
  EXPECT_TRUE(torch::equal(seen, tokens_from(first, count)));
}

TEST(KeyValueCache, TakesMemoryOnceWhereTheLengthIsKnown) {
  KeyValueCache cache(10);
  auto [keys, values] = cache.append(tokens_from(0, 4), -tokens_from(0, 4));
  EXPECT_EQ(cache.capacity(), 10);
  const void* memory = keys.data_ptr();
  for (std::int64_t token = 4; token < 10; ++token) {
    const auto seen = cache.append(tokens_from(token, 1), -tokens_from(token, 1));
    expect_in_sight(seen.first, 0, token + 1);
    expect_in_sight(-seen.second, 0, token + 1);
    EXPECT_EQ(seen.first.data_ptr(), memory) << token;
  }
  // One token more than expected: more memory, the same tokens.
  expect_in_sight(cache.append(tokens_from(10, 1), tokens_from(10, 1)).first, 0, 11);
  EXPECT_EQ(cache.tokens(), 11);
}

TEST(KeyValueCache, AWindowTakesRoomForTwoOnceAndKeepsWhatItSees) {
  constexpr std::int64_t kWindow = 3;
  for (const std::int64_t prompt : {1, 2, 3, 5, 6, 9}) {
    KeyValueCache cache(1000);
    cache.append(tokens_from(0, prompt), tokens_from(0, prompt), kWindow);
    const std::int64_t capacity = cache.capacity();
    // Larger sizes are allocated in steps of 64.
    EXPECT_EQ(capacity, prompt <= 2 * kWindow ? 2 * kWindow : 64) << prompt;
    const void* memory = nullptr;
    for (std::int64_t token = prompt; token < prompt + 40; ++token) {
      const auto [keys, values] = cache.append(tokens_from(token, 1), tokens_from(token, 1), kWindow);
      const std::int64_t seen = std::min(token + 1, kWindow);
      expect_in_sight(keys, token + 1 - seen, seen);
      ASSERT_EQ(cache.capacity(), capacity) << prompt << " " << token;
      if (!memory) memory = keys.storage().data();
      EXPECT_EQ(keys.storage().data(), memory) << prompt << " " << token;
    }
  }
}

TEST(KeyValueCache, SelectedSamplesTakeTurnsInTwoMemories) {
  KeyValueCache cache(8);
  cache.append(tokens_from(0, 3), tokens_from(0, 3));
  std::set<const void*> memories;
  torch::Tensor expected = tokens_from(0, 3);
  for (std::int64_t token = 3; token < 8; ++token) {
    const torch::Tensor order = torch::tensor({token % 2, std::int64_t{1}}, torch::kInt64);
    cache.select(order);
    const torch::Tensor added = tokens_from(token, 1);
    expected = torch::cat({expected.index_select(0, order), added}, 2);
    const auto [keys, values] = cache.append(added, added);
    EXPECT_TRUE(torch::equal(keys, expected)) << token;
    EXPECT_TRUE(torch::equal(values, expected)) << token;
    memories.insert(keys.storage().data());
  }
  EXPECT_EQ(memories.size(), 2u);
  cache.select(torch::tensor({0, 0, 1}, torch::kInt64));  // another number of samples
  const torch::Tensor more = torch::zeros({3, 3, 1, 4}, torch::kFloat64);
  EXPECT_TRUE(torch::equal(cache.append(more, more).first.narrow(2, 0, 8),
                           expected.index_select(0, torch::tensor({0, 0, 1}, torch::kInt64))));
}

}  // namespace
}  // namespace gantry::testing
