// Published configurations: each is taken, or refused by the kind of its quantisation. They are not part of Gantry: the
// directory that GANTRY_REFERENCE_FILES names has them at configs/NAME/config.json.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/family_reader.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The refusals that are right, by the quantisation that the file states.
std::string right_refusal(const json& keys) {
  const json how = keys.value("quantization_config", json());
  const json method = how.is_object() ? how.value("quant_method", json()) : json();
  if (method == "fp8" && how.contains("weight_block_size")) return "";
  if (method == "mxfp4" && keys["model_type"] == "gpt_oss") return "";
  if (keys.contains("quantization") || (how.is_object() && method.is_null())) return "by MLX";
  if (method == "gptq") return "by GPTQ";
  if (method == "awq") return "by AWQ";
  if (method == "bitsandbytes" && (how.value("load_in_4bit", false) || how.value("load_in_8bit", false))) return "";
  return method.is_string() ? "which Gantry does not read" : "";
}

TEST(PublishedConfigurations, AreTakenOrRefusedForTheirQuantisation) {
  const char* root = std::getenv("GANTRY_REFERENCE_FILES");
  if (!root) GTEST_SKIP() << "GANTRY_REFERENCE_FILES is not set: no published configurations";
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(root) + "/configs")) {
    SCOPED_TRACE(entry.path().filename().string());
    const json keys = json::parse(std::ifstream(entry.path() / "config.json"));
    const auto* family = models::find_family_reader(keys.value("model_type", ""));
    if (!family) continue;  // such files are tried by `gantry models`
    ++count;
    const std::string line = thrown_by([&] { models::check_keys(*family, keys); });
    const std::string expected = right_refusal(keys);
    if (expected.empty())
      EXPECT_EQ(line, "no error");
    else
      EXPECT_THAT(line, HasSubstr(expected));
  }
  EXPECT_GT(count, 0u);
}

}  // namespace
}  // namespace gantry::testing
