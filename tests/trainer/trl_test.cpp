// Five steps of each objective compared with TRL's trainers (tests/golden/trl): losses, gradient norms and rewards.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program.h"

namespace gantry::testing {
namespace {

using Json = nlohmann::json;

constexpr const char* kFolder = GANTRY_SOURCE_DIR "/tests/golden/trl/";
constexpr std::array kLayouts = {"{}", "{tensor: 2}", "{pipeline: 2}", "{data: 2, zero: 1}", "{data: 2, zero: 3}"};

// The configuration that does what the case has trained. YAML includes JSON.
std::string yaml_of(const Json& one, const std::string& output) {
  Json config = {{"precision", "float64"}, {"output", output}, {"comm", {{"threads_per_rank", 1}}}};
  config["model"] = {{"path", kFolder + one.at("model").get<std::string>()}};
  if (one.contains("pad")) config["model"]["config"] = {{"pad_token_id", 1}};
  config["data"] = {{"format", "jsonl"},
                    {"path", kFolder + one.at("data").get<std::string>()},
                    {"sequence_length", one.value("sequence_length", 128)},
                    {"batch_size", one.at("batch")},
                    {"shuffle", false}};
  config["optimizer"] = {{"lr", one.at("lr")}, {"weight_decay", 0.01}, {"clip_grad_norm", 1.0}};
  config["optimizer"]["no_decay"] = {"*norm*"};
  config["train"] = {{"steps", 5}};
  if (one.contains("objective")) config["train"]["objective"] = one["objective"];
  if (one.contains("teacher")) config["train"]["objective"]["teacher"] = kFolder + one.at("teacher").get<std::string>();
  if (one.contains("adapter")) {
    config["lora"] = {{"path", kFolder + one.at("adapter").get<std::string>()}};
    config["optimizer"].erase("no_decay");
  }
  return config.dump() + "\n";
}

void expect_near_steps(const Json& expected, const std::string& metrics, const std::string& name) {
  std::map<std::string, double> largest;
  for (const Json& step : expected)
    for (const auto& [key, value] : step.items()) largest[key] = std::max(largest[key], std::abs(value.get<double>()));
  std::istringstream lines(metrics);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_LT(count, expected.size()) << name;
    const Json step = Json::parse(line);
    for (const auto& [key, value] : expected[count].items())
      EXPECT_NEAR(step.at(key).get<double>(), value.get<double>(), 1e-4 * largest.at(key) + 1e-6)
          << name << ", step " << count + 1 << ", " << key;
  }
  EXPECT_EQ(count, expected.size()) << name;
}

TEST(Trl, FiveStepsOfEveryObjectiveAreEqual) {
  const Json cases = Json::parse(read_file(std::string(kFolder) + "expected.json"));
  EXPECT_EQ(cases.size(), 12u);
  std::size_t layout = 0;
  for (const auto& [name, one] : cases.items()) {
    const ScratchFolder scratch;
    const std::string text = yaml_of(one, scratch / "run");
    const std::string sets = fmt::format("--set 'parallel={}'", kLayouts[layout++ % kLayouts.size()]);
    const Outcome run =
        run_program(fmt::format("{} train {} {}", gantry_program(), scratch.write("train.yaml", text), sets));
    ASSERT_EQ(run.exit_code, 0) << name << " " << sets << run.err;
    expect_near_steps(one.at("steps"), read_file(scratch / "run/metrics.jsonl"), name + " " + sets);
  }
}

}  // namespace
}  // namespace gantry::testing
