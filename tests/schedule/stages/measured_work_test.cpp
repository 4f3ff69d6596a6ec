// `balanced` uses the layer times that a run has measured.
#include "gantry/schedule/stages/measured_work.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "gantry/core/config.h"
#include "gantry/core/config/schedule_choice.h"
#include "gantry/core/error.h"
#include "gantry/schedule/stages/layers_per_stage.h"

namespace gantry {
namespace {

class MeasuredWork : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::temp_directory_path() / ("gantry-measured-" + std::to_string(getpid()))).string();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& text) const { std::ofstream(folder_ + "/report.json") << text; }
  std::string refused(const std::string& text) const {
    write(text);
    try {
      read_measured_work(folder_);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  std::string folder_;
};

TEST_F(MeasuredWork, IsReadAsItWasWritten) {
  const LayerWork work{{1.5, 0, 2.25}, 0.5, 7};
  write(nlohmann::ordered_json{{"format", 1}, {"layer_times", to_json(work)}}.dump());
  const LayerWork read = read_measured_work(folder_);
  EXPECT_EQ(read.layers, work.layers);
  EXPECT_EQ(read.first, work.first);
  EXPECT_EQ(read.last, work.last);
}

TEST_F(MeasuredWork, DecidesTheStages) {
  write(R"({"layer_times": {"layers": [9, 1, 1, 1], "first": 0, "last": 0}})");
  ScheduleConfig schedule;
  schedule.layers.emplace<std::string>("balanced: " + folder_);
  const LayerWork equal{std::vector<double>(4, 1.0)};
  EXPECT_EQ(layers_per_stage(schedule, equal, {0, 1}), (std::vector<int>{1, 3}));
  schedule.layers.emplace<std::string>("balanced");
  EXPECT_EQ(layers_per_stage(schedule, equal, {0, 1}), (std::vector<int>{2, 2}));
  schedule.layers.emplace<std::string>("balanced: " + folder_);
  const LayerWork five{std::vector<double>(5, 1.0)};
  try {
    layers_per_stage(schedule, five, {0, 1});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("has measured 4 layers, but the model has 5"), std::string::npos);
  }
}

TEST_F(MeasuredWork, RefusesWhatIsNone) {
  EXPECT_NE(refused("{}").find("the report has no entry layer_times"), std::string::npos);
  EXPECT_NE(refused("[1").find("the file is not a JSON object"), std::string::npos);
  EXPECT_NE(refused(R"({"layer_times": {"layers": 3}})").find("the report has no entry layer_times"),
            std::string::npos);
  EXPECT_NE(refused(R"({"layer_times": {"layers": [1, -1]}})").find("layer_times has the value -1"), std::string::npos);
  EXPECT_NE(refused(R"({"layer_times": {"layers": [1], "last": "x"}})").find("layer_times has the value \"x\""),
            std::string::npos);
  EXPECT_THROW(read_measured_work(folder_ + "/nowhere"), ConfigError);
}

TEST(MeasuredWorkKey, IsAMappingThatIsWrittenAsItIsRead) {
  const auto parse = [](const std::string& layers) {
    return Config::parse("model: {policy: gpt2}\nschedule: {layers: " + layers + "}\n");
  };
  const Config config = parse("{balanced: runs/a b}");
  EXPECT_EQ(measured_run(config.schedule), "runs/a b");
  EXPECT_TRUE(is_balanced(config.schedule));
  EXPECT_EQ(measured_run(Config::parse(config.to_yaml()).schedule), "runs/a b");
  EXPECT_EQ(measured_run(parse("balanced").schedule), std::nullopt);
  EXPECT_TRUE(is_balanced(parse("balanced").schedule));
  EXPECT_THROW(parse("{balanced: [1]}"), ConfigError);
  EXPECT_THROW(parse("{even: x}"), ConfigError);
}

}  // namespace
}  // namespace gantry
