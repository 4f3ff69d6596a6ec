#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/schedule/simulate.h"
#include "random_schedule.h"

namespace gantry::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST(DrawText, ShowsEveryActionAtItsTime) {
  EXPECT_EQ(draw_text(simulate(generate("1f1b", 2, 2))),
            "2 ranks, makespan 9, bubble 33.3%\n"
            "time 0 to 9\n"
            "rank 0 |F0--F1--........B0------....B1------| 2\n"
            "rank 1 |....F0--B0------F1--B1------........| 1\n"
            "F forward, B backward, . idle; kind, microbatch; on the right the peak of activations held\n");
}

TEST(DrawText, StagesAreNamedWhereARankHasSeveral) {
  const std::string text = draw_text(simulate(from_csv("0F0,3F0,3I0,3W0,0B0\n1F0,2F0,2B0,1B0\n", "v")));
  EXPECT_THAT(text, HasSubstr("3F0"));
  EXPECT_THAT(text, HasSubstr("I input gradient"));
}

TEST(DrawText, FitsItsWidthForAnySize) {
  for (const int ranks : {1, 2, 4, 8, 16, 64, 120})
    for (const int microbatches : {1, 2, 8, 13, 64, 200})
      for (const int width : {60, 100, 160}) {
        const std::string text = draw_text(simulate(generate("1f1b", ranks, microbatches)), width);
        EXPECT_LE(longest_line(text), static_cast<std::size_t>(std::max(width, 100))) << text.substr(0, 500);
        EXPECT_LE(count(text, "\n"), static_cast<std::size_t>(3 * ranks + 5));
      }
}

TEST(DrawText, SurvivesOddTimesAndWidths) {
  testing::RandomSchedule random(17);
  for (int i = 0; i < 200; ++i) {
    const Schedule schedule = random.make(4, 3, 6);
    for (const auto& costs : {Costs{1, 1, 1, 0}, Costs{0.3, 0.7, 0, 0.01}, Costs{1e-9, 1e9, 3, 7}, Costs{0, 1, 0, 1e6}})
      for (const int width : {-5, 0, 40, 100}) EXPECT_FALSE(draw_text(simulate(schedule, costs), width).empty());
  }
}

TEST(DrawSvg, HasALaneARankAndABoxAnAction) {
  const std::string svg = draw_svg(simulate(generate("1f1b", 4, 8)), "1f1b");
  EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  EXPECT_EQ(count(svg, "class=\"lane\""), 4u);
  EXPECT_EQ(count(svg, "microbatch "), 64u);
  EXPECT_EQ(count(svg, "class=\"label\""), 64u);
  EXPECT_THAT(svg, HasSubstr("makespan 33, bubble 27.3%"));
  EXPECT_EQ(count(svg, "<rect"), count(svg, "<title>rank") + count(svg, "class=\"lane\"") + 2 + 1);  // legend, ground
}

TEST(DrawSvg, TakesAnyTitleAndLeavesNothingOutside) {
  const std::string svg = draw_svg(simulate(generate("gpipe", 2, 2)), "a < b & \"c\" </svg>");
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; \"c\" &lt;/svg&gt;"));
  EXPECT_EQ(count(svg, "</svg>"), 1u);
  EXPECT_THAT(svg, Not(HasSubstr("http://www.w3.org/1999")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(DrawTrace, IsJsonWithEveryActionOnItsRank) {
  const auto trace = nlohmann::json::parse(draw_chrome_trace(simulate(generate("1f1b", 2, 3))));
  std::size_t names = 0;
  std::size_t actions = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "M") ++names;
    if (event["ph"] != "X") continue;
    ++actions;
    EXPECT_EQ(event["args"]["stage"], event["tid"]);
  }
  EXPECT_EQ(names, 2u);
  EXPECT_EQ(actions, 12u);
  const auto& first = trace["traceEvents"][1];
  EXPECT_EQ(first["name"], "F0");
  EXPECT_EQ(first["ts"], 0);
  EXPECT_EQ(first["dur"], 1000);
}

}  // namespace
}  // namespace gantry::schedule
