// A model in PyTorch's shards.
#include <gtest/gtest.h>

#include "family_case.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

TEST(PickledModel, HasTheLogitsOfTransformers) {
  const std::string folder = GANTRY_SOURCE_DIR "/tests/golden/pickled/model";
  const torch::Tensor expected = read_safetensors(folder + "/expected.safetensors").at("logits");
  for (const Layout& layout : {Layout{}, Layout{.tensor = 2}}) {
    const torch::Tensor logits = run_family(folder, layout, false).outputs.at("logits");
    EXPECT_LE((logits - expected).abs().max().item<double>(), 5e-5);
  }
}

}  // namespace
}  // namespace gantry::testing
