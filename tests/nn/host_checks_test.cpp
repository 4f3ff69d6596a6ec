// Modules and losses read no data of a device. If the host has a copy of the data, they check it there. The
// meta device stands for the device, because reading its data fails.
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/cross_entropy.h"
#include "gantry/nn/embedding.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

std::string refused(const std::function<void()>& run) {
  try {
    run();
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(HostChecks, ATokenOfAMicrobatchOnADeviceIsNamed) {
  nn::Embedding embedding(256, 2);
  const torch::Tensor tokens = torch::tensor({{1, 2}, {3, 4}, {5, 307}});
  const torch::Tensor there = to_device(tokens, torch::kMeta);
  const HostCopy known(there, tokens);
  EXPECT_NE(refused([&] {
              embedding(there.narrow(0, 1, 2));
            }).find("tokens: token 307 at [1, 1] is outside the vocabulary of 256"),
            std::string::npos);
}

TEST(HostChecks, LabelsOnADeviceAreCheckedAndCountedOnTheHost) {
  const torch::Tensor logits = torch::zeros({2, 3, 7}, torch::kMeta);
  const torch::Tensor labels = torch::tensor({{3, -100, 6}, {0, 1, -100}}), wrong = labels + 1;
  const torch::Tensor there = to_device(labels, torch::kMeta), wrong_there = to_device(wrong, torch::kMeta);
  const HostCopy known(there, labels), wrong_known(wrong_there, wrong);
  EXPECT_EQ(number_of(nn::cross_entropy(logits, there).count), 4);
  EXPECT_NE(refused([&] {
              nn::cross_entropy(logits, wrong_there);
            }).find("labels: label -99 at index 1 is outside the vocabulary of 7"),
            std::string::npos);
}

TEST(HostChecks, LabelsThatTheHostDoesNotKnowAreCountedOnTheDevice) {
  const Loss loss = nn::cross_entropy(torch::zeros({2, 7}, torch::kMeta),
                                      torch::zeros({2}, torch::dtype(torch::kInt64).device(torch::kMeta)));
  EXPECT_TRUE(loss.count.is_meta());
}

TEST(HostChecks, AMaskThatHidesNothingIsLeftOutWhereTheHostKnows) {
  const torch::Tensor all = torch::ones({2, 3}, torch::kInt64), some = torch::tensor({{1, 1, 0}, {1, 1, 1}});
  const torch::Tensor all_there = to_device(all, torch::kMeta), some_there = to_device(some, torch::kMeta);
  EXPECT_FALSE(nn::kept_tokens(all).defined());
  EXPECT_TRUE(nn::kept_tokens(all_there).defined());
  const HostCopy known(all_there, all), other(some_there, some);
  EXPECT_FALSE(nn::kept_tokens(all_there).defined());
  EXPECT_TRUE(nn::kept_tokens(some_there).is_meta());
  EXPECT_FALSE(nn::kept_tokens(some_there.narrow(0, 1, 1)).defined());
}

}  // namespace
}  // namespace gantry::testing
