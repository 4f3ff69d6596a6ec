// The experts of a model among the numbers for monitoring.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/trainer/status/status_pages.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(StatusExperts, AreThereWhereTheModelHasThem) {
  RunNumbers numbers{.step = 3};
  EXPECT_THAT(open_metrics(numbers), Not(HasSubstr("expert")));
  numbers.experts = {.layers = {{.router = "layers.0.gate", .tokens = {1, 5}}}, .dropped = 0};
  numbers.all_to_all_bytes = 640;
  const std::string text = open_metrics(numbers);
  for (const char* line : {"gantry_dropped_choices 0\n", "gantry_all_to_all_bytes 640\n",
                           "gantry_all_to_all_seconds 0\n", "gantry_expert_load_ratio{router=\"layers.0.gate\"} 1.66",
                           "gantry_expert_tokens{router=\"layers.0.gate\",expert=\"1\"} 5\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

}  // namespace
}  // namespace gantry::testing
