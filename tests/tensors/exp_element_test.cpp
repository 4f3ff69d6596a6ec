// The exponential function of the kernels, compared with the host's.
#include "gantry/tensors/kernels/exp_element.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace gantry::testing {
namespace {

using kernels::exp_element;
using kernels::expm1_element;

template <class A>
void expect_exponentials(A smallest, A largest, double tolerance) {
  constexpr int kPoints = 100000;
  for (int i = 0; i <= kPoints; ++i) {
    const A x = smallest + (largest - smallest) * (static_cast<A>(i) / static_cast<A>(kPoints));
    const long double exact = std::exp(static_cast<long double>(x));
    ASSERT_LE(std::abs(exp_element(x) / exact - 1), tolerance) << x;
  }
  for (A x = smallest; x < A(-1e-30); x *= A(0.99)) {
    const long double exact = std::expm1(static_cast<long double>(x));
    ASSERT_LE(std::abs(expm1_element(x) / exact - 1), 2 * tolerance) << x;
  }
}

TEST(ExpElement, IsExactToTheLastPlace) {
  expect_exponentials<float>(-87, 88, 1.2e-7);
  expect_exponentials<double>(-708, 709, 2.3e-16);
}

template <class A>
void expect_limits() {
  constexpr A kInfinity = std::numeric_limits<A>::infinity();
  EXPECT_EQ(exp_element(A(0)), A(1));
  EXPECT_EQ(exp_element(-kInfinity), A(0));
  EXPECT_EQ(exp_element(A(-1e6)), A(0));
  EXPECT_EQ(exp_element(A(1e6)), kInfinity);
  EXPECT_EQ(exp_element(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exp_element(std::numeric_limits<A>::quiet_NaN())));
  EXPECT_EQ(expm1_element(A(0)), A(0));
  EXPECT_EQ(expm1_element(-kInfinity), A(-1));
}

TEST(ExpElement, HasTheLimitsOfTheFunction) {
  expect_limits<float>();
  expect_limits<double>();
}

}  // namespace
}  // namespace gantry::testing
