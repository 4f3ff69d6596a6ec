// Activations compared with values of transformers 5.23.0
// (tests/golden/hub/activations.json), and their gradients.
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

// SiLU and GELU have their own backward; the other activations do not.
TEST(Activations, GateValuesAsTheProductDoes) {
  for (const auto& name : nn::activation_names()) {
    SCOPED_TRACE(name);
    torch::Tensor both = (torch::arange(2 * 3 * 8, torch::kFloat64) * 0.7).sin().mul_(3).view({2, 3, 8});
    both.requires_grad_();
    const auto halves = both.chunk(2, -1);
    const torch::Tensor expected = nn::activate(halves[0], name) * halves[1];
    expected.square().sum().backward();
    const torch::Tensor gradient = both.grad().clone();
    for (const bool fused : {false, true}) {
      both.mutable_grad().reset();
      const torch::Tensor made = fused ? nn::gated_halves(both, name) : nn::gated(halves[0], halves[1], name);
      EXPECT_TRUE(torch::allclose(made, expected, 1e-13, 1e-13));
      made.square().sum().backward();
      EXPECT_TRUE(torch::allclose(both.grad(), gradient, 1e-12, 1e-12));
    }
  }
}

// All other activations of transformers' table have weights.
TEST(Activations, AreAllWithoutWeights) {
  const nlohmann::json all = stored_activations();
  EXPECT_EQ(all["values"].size(), nn::activation_names().size());
}

}  // namespace
}  // namespace gantry::testing
