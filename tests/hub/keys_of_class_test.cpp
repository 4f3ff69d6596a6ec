// The keys of transformers' configuration classes (tests/golden/hub/class_keys.json) against the readers of the
// families.
#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/family_reader.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using models::CheckedKeys;
using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json class_keys() { return json::parse(std::ifstream(GANTRY_SOURCE_DIR "/tests/golden/hub/class_keys.json")); }

CheckedKeys checked(const std::string& family, const json& keys) {
  return models::check_keys(*models::find_family_reader(family), keys);
}

std::string refusal(const std::string& family, const json& keys) {
  return thrown_by([&] { checked(family, keys); });
}

TEST(ClassKeys, EveryFamilyHasAnEntry) {
  const json all = class_keys();
  EXPECT_EQ(all.size(), models::family_readers().size());
  for (const auto& family : models::family_readers()) EXPECT_TRUE(all.contains(family.model_type)) << family.model_type;
}

TEST(ClassKeys, EveryKeyOfTheClassIsReadOrAcceptedOnPurpose) {
  const json all = class_keys();
  for (const auto& [family, entry] : all.items()) {
    const CheckedKeys keys = checked(family, json::object());
    for (const auto& [key, value] : entry["keys"].items()) EXPECT_THAT(keys.known, Contains(key)) << family;
  }
}

// The defaults of a class describe a model that Gantry has.
TEST(ClassKeys, TheDefaultsOfTheClassAreAccepted) {
  const json all = class_keys();
  for (const auto& [family, entry] : all.items()) {
    EXPECT_THAT(checked(family, entry["keys"]).unknown, ElementsAre()) << family;
  }
}

// A spelling of the attribute map, alone, sets the key; with another value of the key it is a contradiction.
TEST(ClassKeys, EverySpellingOfTheAttributeMapIsRead) {
  const json all = class_keys();
  for (const auto& [family, entry] : all.items())
    for (const auto& [spelling, canonical] : entry["map"].items()) {
      const std::string key = canonical;
      if (key == "num_nextn_predict_layers" || (family == "qwen3_moe" && key == "num_local_experts")) continue;
      const json keys = {{spelling, 3}, {key, 5}};
      const std::string line = refusal(family, keys);
      EXPECT_THAT(line, HasSubstr("model.config." + key + ": the value is 5")) << family;
      EXPECT_THAT(line, HasSubstr(spelling + ", which is 3")) << family;
    }
}

}  // namespace
}  // namespace gantry::testing
