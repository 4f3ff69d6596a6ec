// Model families that a program adds: mistakes are reported before the first step, not at the export.
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/models/model_family.h"
#include "thrown_by.h"

namespace gantry {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kKeys = R"({"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 16, "n_positions": 8})";

// A configuration of GPT-2 with other tensor names.
Config config_with(const std::string& name, const std::function<std::vector<models::TensorName>(const json&)>& names) {
  models::ModelFamily family = models::families().at("gpt2");
  family.tensor_names = names;
  models::families().add(name, family);
  Config config;
  config.model.policy = name;
  config.model.config_json = kKeys;
  return config;
}

TEST(OwnFamily, ATiedParameterIsListedOnce) {
  const auto gpt2 = models::families().at("gpt2");
  const Config twice = config_with("tied_twice", [gpt2](const json& keys) {
    std::vector<models::TensorName> names;
    for (const auto& item : gpt2.build(keys)->named_parameters()) names.push_back({item.key(), item.key()});
    return names;
  });
  EXPECT_THAT(testing::thrown_by<ConfigError>([&] { build_model(twice); }),
              HasSubstr("model family 'tied_twice': tensor_names() lists a tied parameter twice, as 'wte.weight' and "
                        "'lm_head.weight'; expected each parameter once"));
  const Config once =
      config_with("tied_once", [gpt2](const json& keys) { return models::names_of_parameters(*gpt2.build(keys)); });
  EXPECT_NO_THROW(build_model(once));
}

}  // namespace
}  // namespace gantry
