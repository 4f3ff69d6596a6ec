// Fitted rates reproduce the rates from which times were computed, and are never negative.
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/planner/calibration.h"

namespace gantry::planner {
namespace {

TEST(FittedRates, ProductsGiveTheirPeakShareAndHalfPoint) {
  std::vector<ProductTime> times;
  const double rate = 2e11, half = 5e7;
  for (double flops = 1e5; flops < 1e10; flops *= 8) times.push_back({flops, (flops + half) / rate});
  const FittedProducts fitted = fit_products(times);
  EXPECT_NEAR(fitted.peak * fitted.efficiency / rate, 1, 1e-9);
  EXPECT_NEAR(fitted.half_flops / half, 1, 1e-9);
  EXPECT_NEAR(fitted.efficiency, 1, 1e-9);
  for (ProductTime& each : times) each.seconds = (each.flops > 1e8 ? 2 : 1) * each.flops / rate;  // caches
  EXPECT_DOUBLE_EQ(fit_products(times).peak, rate);
  EXPECT_LT(fit_products(times).efficiency, 1);
  EXPECT_THROW(fit_products({{1e6, 1}, {1e6, 2}}), UsageError);
}

TEST(FittedRates, CollectivesGiveTheirLink) {
  const Link link{.bytes_per_second = 3e9, .latency_seconds = 4e-6, .call_seconds = 2e-5};
  std::vector<CollectiveTime> times;
  for (const int ranks : {2, 4})
    for (const int rounds : {1, 2})
      for (const double bytes : {4e3, 1e6, 8e6}) {
        const double steps = rounds * (ranks - 1.0);
        times.push_back({ranks, rounds, bytes,
                         link.call_seconds + steps * (link.latency_seconds + bytes / ranks / link.bytes_per_second)});
      }
  const Link fitted = fit_link(times);
  EXPECT_NEAR(fitted.bytes_per_second / link.bytes_per_second, 1, 1e-6);
  EXPECT_NEAR(fitted.latency_seconds / link.latency_seconds, 1, 1e-6);
  EXPECT_NEAR(fitted.call_seconds / link.call_seconds, 1, 1e-6);
}

// Small calls that are faster than large calls suggest: the unconstrained optimum has a negative call time.
TEST(FittedRates, NothingIsBelowZero) {
  const Link fitted = fit_link({{2, 2, 1e3, 1e-7}, {2, 2, 1e6, 1e-3}, {2, 2, 2e6, 2.5e-3}});
  EXPECT_EQ(fitted.call_seconds, 0);
  EXPECT_EQ(fitted.latency_seconds, 0);
  EXPECT_GT(fitted.bytes_per_second, 0);
  const auto found = fit_non_negative({{{1, 1}, 1}, {{1, 2}, 0.5}});
  EXPECT_GE(found[0], 0);
  EXPECT_EQ(found[1], 0);
  EXPECT_THROW(fit_non_negative({}), UsageError);
}

}  // namespace
}  // namespace gantry::planner
