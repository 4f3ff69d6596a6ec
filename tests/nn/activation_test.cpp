// Activations against values of transformers 5.23.0 (tests/golden/hub/activations.json), and their gradients.
#include "gantry/nn/activation.h"

#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

nlohmann::json stored_activations() {
  return nlohmann::json::parse(std::ifstream(GANTRY_SOURCE_DIR "/tests/golden/hub/activations.json"));
}

torch::Tensor doubles(const nlohmann::json& values) {
  return torch::tensor(values.get<std::vector<double>>(), torch::kFloat64);
}

TEST(Activations, HaveTheValuesAndGradientsOfTransformers) {
  const nlohmann::json all = stored_activations();
  for (const auto& name : nn::activation_names()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(all["values"].contains(name));
    const torch::Tensor input = doubles(all["inputs"]).requires_grad_();
    const torch::Tensor output = nn::activate(input, name);
    EXPECT_TRUE(torch::allclose(output, doubles(all["values"][name]), 1e-8, 1e-8));
    output.sum().backward();
    EXPECT_TRUE(torch::allclose(input.grad(), doubles(all["gradients"][name]), 1e-7, 1e-7));
  }
}

// All others of transformers' table have weights of their own.
TEST(Activations, AreAllWithoutWeights) {
  const nlohmann::json all = stored_activations();
  EXPECT_EQ(all["values"].size(), nn::activation_names().size());
}

}  // namespace
}  // namespace gantry::testing
