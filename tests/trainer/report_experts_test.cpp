// The use of experts in the data that the report's page receives.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/trainer/report/expert_history.h"
#include "gantry/trainer/report/run_reader.h"
#include "program.h"

namespace gantry::testing {
namespace {

using Json = nlohmann::json;

Json line_of(int step, const Json& first, const Json& second = {4, 4}) {
  return {
      {"step", step},
      {"experts",
       {{"layers", {{{"router", "b"}, {"tokens", first}}, {{"router", "a"}, {"tokens", second}}}}, {"dropped", 1}}}};
}

TEST(ExpertHistory, HasLoadsOverTheMeanInTheModelsOrder) {
  ExpertHistory history;
  EXPECT_TRUE(history.data().is_null());
  history.add({{"step", 1}, {"loss", 2.5}});
  EXPECT_TRUE(history.data().is_null()) << "a model without experts";
  history.add(line_of(1, {1, 2, 6}));
  history.add(line_of(2, {0, 0, 0}));
  const Json data = history.data();
  EXPECT_EQ(data["routers"], (Json{"b", "a"}));
  EXPECT_EQ(data["steps"], (Json{1, 2}));
  EXPECT_EQ(data["loads"][0], (Json{{0.333, 0.667, 2.0}, {1.0, 1.0}}));
  EXPECT_EQ(data["loads"][1], (Json{{0.0, 0.0, 0.0}, {1.0, 1.0}}));
  EXPECT_EQ(data["dropped"], 2);
}

TEST(ExpertHistory, LongRunsKeepStretches) {
  ExpertHistory history;
  for (int step = 1; step <= 1000; ++step) history.add(line_of(step, {step <= 500 ? 3 : 0, 1, 2}));
  const Json data = history.data();
  ASSERT_LE(data["steps"].size(), ExpertHistory::kMost);
  ASSERT_GT(data["steps"].size(), ExpertHistory::kMost / 4);
  EXPECT_EQ(data["steps"].back(), 1000);
  EXPECT_EQ(data["loads"].size(), data["steps"].size());
  EXPECT_EQ(data["loads"].front()[0], (Json{1.5, 0.5, 1.0}));
  EXPECT_EQ(data["loads"].back()[0], (Json{0.0, 1.0, 2.0}));
}

TEST(ExpertHistory, PassesOverWhatItDoesNotKnow) {
  ExpertHistory history;
  history.add(line_of(1, {1, 2, 6}));
  for (const Json& first : {Json{1, 2}, Json{1, "2", 6}, Json(7), Json()}) history.add(line_of(2, first));
  history.add({{"step", 2}, {"experts", {{"layers", {{{"tokens", {1, 2, 6}}}}}}}});
  history.add({{"step", 2}, {"experts", {1}}});
  EXPECT_EQ(history.data()["steps"], Json{1});
}

TEST(ExpertHistory, IsPartOfThePagesData) {
  const ScratchFolder run;
  run.write("metrics.jsonl", line_of(1, {1, 1}).dump() + "\n");
  run.write("config.yaml", "model: {policy: gpt2}\n");
  const Json data = RunReader(run.path()).data(false);
  EXPECT_EQ(data["experts"]["routers"], (Json{"b", "a"}));
  EXPECT_NE(report_page(data).find("Tokens of each expert"), std::string::npos);
}

}  // namespace
}  // namespace gantry::testing
