// A gradient without memory until something is added to it.
#include "gantry/tensors/lazy_gradient.h"

#include <gtest/gtest.h>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

TEST(LazyGradient, HasMemoryFromWhatIsAddedFirst) {
  torch::Tensor weight = torch::ones({3}, torch::kBFloat16).requires_grad_();
  LazyGradient gradient(weight, torch::kFloat32, "nothing is added to the weight's gradient");
  gradient.show();
  EXPECT_EQ(weight.grad().storage().nbytes(), 0u);
  try {
    weight.grad().sum();
    ADD_FAILURE() << "was read without memory";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("nothing is added to the weight's gradient"), std::string::npos);
  }
  for (const double expected : {2.0, 4.0}) {
    (weight * 2).sum().backward();
    EXPECT_TRUE(torch::equal(weight.grad(), torch::full({3}, expected, torch::kFloat32)));
  }
  gradient.clear();
  EXPECT_EQ(weight.grad().storage().nbytes(), 0u);
  (weight * 3).sum().backward();
  EXPECT_TRUE(torch::equal(weight.grad(), torch::full({3}, 3.0, torch::kFloat32))) << "of the second backward alone";
}

TEST(LazyGradient, IsBroughtByWhoAddsItself) {
  torch::Tensor weight = torch::ones({2}).requires_grad_();
  LazyGradient gradient(weight, torch::kFloat32, "");
  bring_lazy_gradient(weight);  // no gradient is shown
  EXPECT_FALSE(weight.grad().defined());
  gradient.show();
  bring_lazy_gradient(weight);
  weight.mutable_grad().add_(1);
  EXPECT_TRUE(torch::equal(gradient.values(), torch::ones({2})));
  gradient.hide();
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_TRUE(torch::equal(gradient.values(), torch::ones({2}))) << "hidden, not gone";
}

// The user's hooks on a parameter run too, in any order of registration.
TEST(LazyGradient, LeavesRoomForOtherHooks) {
  torch::Tensor weight = torch::ones({2}).requires_grad_();
  int called = 0;
  weight.register_hook([&](const torch::Tensor&) { ++called; });
  LazyGradient gradient(weight, torch::kFloat32, "");
  gradient.show();
  weight.register_hook([&](const torch::Tensor& added) {
    ++called;
    return added * 10;
  });
  weight.sum().backward();
  EXPECT_EQ(called, 2);
  EXPECT_TRUE(torch::equal(weight.grad(), torch::full({2}, 10.0)));
}

TEST(LazyGradient, OfNoElementsAndOfAFrozenParameter) {
  torch::Tensor weight = torch::ones({0, 4}).requires_grad_();
  LazyGradient gradient(weight, torch::kFloat32, "");
  gradient.show();
  weight.sum().backward();
  EXPECT_EQ(gradient.values().numel(), 0);
  LazyGradient of_frozen(torch::ones({2}), torch::kFloat32, "");
  EXPECT_TRUE(torch::equal(of_frozen.values(), torch::zeros({2})));
}

}  // namespace
}  // namespace gantry
