// Host copies of tensors on a device. The meta device represents the device, because any read of its values
// fails.
#include "gantry/tensors/host_copy.h"

#include <gtest/gtest.h>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

torch::Tensor numbers() { return torch::arange(24).view({4, 6}); }

TEST(HostCopy, OnTheCpuItIsTheTensorItself) {
  const torch::Tensor mine = numbers();
  EXPECT_TRUE(on_host(mine).is_same(mine));
  EXPECT_FALSE(on_host({}).defined());
}

TEST(HostCopy, EachViewIsKnownAsLongAsItLives) {
  const torch::Tensor host = numbers(), there = to_device(host, torch::kMeta);
  EXPECT_FALSE(on_host(there).defined());
  {
    const HostCopy known(there, host);
    EXPECT_TRUE(torch::equal(on_host(there), host));
    EXPECT_TRUE(torch::equal(on_host(there.narrow(0, 1, 2).reshape({-1})), host.narrow(0, 1, 2).reshape({-1})));
    EXPECT_TRUE(torch::equal(on_host(there.narrow(1, 2, 3).t()), host.narrow(1, 2, 3).t()));
    EXPECT_FALSE(on_host(there + 1).defined());
    EXPECT_FALSE(on_host(there.clone()).defined());
  }
  EXPECT_FALSE(on_host(there).defined());
}

TEST(HostCopy, WhatWasChangedInPlaceIsNotKnown) {
  const torch::Tensor host = numbers(), there = to_device(host, torch::kMeta);
  const HostCopy known(there, host);
  there.narrow(0, 3, 1).add_(1);
  EXPECT_FALSE(on_host(there.narrow(0, 0, 1)).defined());
}

TEST(HostCopy, ItMovesAndIsKnownOnce) {
  const torch::Tensor host = numbers(), there = to_device(host, torch::kMeta);
  HostCopy kept;
  {
    HostCopy known(there, host);
    const HostCopy again(there.narrow(0, 0, 2), host.narrow(0, 2, 2));
    kept = std::move(known);
  }
  EXPECT_TRUE(torch::equal(on_host(there), host));
  kept = HostCopy();
  EXPECT_FALSE(on_host(there).defined());
}

TEST(HostCopy, OfATransposedTensorTheNumbersAreInPlace) {
  const torch::Tensor host = numbers().t(), there = to_device(host, torch::kMeta);
  const HostCopy known(there, host);
  EXPECT_TRUE(torch::equal(on_host(there.select(0, 5)), host.select(0, 5)));
}

TEST(HostCopy, NumbersOfAnyTypeAreReadInOrder) {
  const auto read = read_back({torch::tensor(2), torch::tensor({0.5, -1.0}), torch::tensor(true), torch::empty({0}),
                               torch::tensor(0.25f, torch::requires_grad())});
  EXPECT_EQ(read, (std::vector<double>{2, 0.5, -1, 1, 0.25}));
  EXPECT_TRUE(read_back({}).empty());
  EXPECT_EQ(number_of(torch::tensor(7)), 7);
}

}  // namespace
}  // namespace gantry
