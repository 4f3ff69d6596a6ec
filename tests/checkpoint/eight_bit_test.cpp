// Weights of eight bits with a scale for each row, as bitsandbytes stores them.
#include "gantry/checkpoint/eight_bit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/stored_model.h"
#include "gantry/core/error.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

TensorDict small_codes() {
  return {{"w", torch::tensor({127, -64, 0, 1, -127, 2}, torch::kInt8).view({2, 3})},
          {"scales", torch::tensor({2.F, 0.5F})},
          {"format", torch::zeros({}, torch::kUInt8)}};
}

// Passes the tensors of a file to `use`.
void with_tensors(const TensorDict& tensors, const std::function<void(const EncodedTensor&)>& use) {
  const ScratchFolder scratch;
  write_safetensors(scratch / "w.safetensors", tensors);
  const SafetensorsFile file(scratch / "w.safetensors");
  use(*eight_bit_tensor({&file, "w"}, {&file, "scales"}, TensorPlace{&file, "format"}));
}

TEST(EightBit, AllRowsAndSingleRowsAreDecoded) {
  with_tensors(small_codes(), [](const EncodedTensor& tensor) {
    const torch::Tensor expected =
        torch::tensor({2.0, -2 * 64 / 127.0, 0.0, 0.5 / 127, -0.5, 1 / 127.0}, torch::kFloat64).view({2, 3});
    EXPECT_LE((tensor.decode({0, 2}) - expected).abs().max().item<double>(), 1e-7);
    EXPECT_TRUE(torch::equal(tensor.decode({1, 2}), tensor.decode({0, 2}).narrow(0, 1, 1)));
    EXPECT_TRUE(torch::equal(values_of(WeightCode::kInt8, *tensor.coded(WeightCode::kInt8)), tensor.decode({0, 2})));
  });
}

TEST(EightBit, OtherCodesAndDamagedTensorsAreRefused) {
  const auto refusal = [](const TensorDict& tensors) {
    return thrown_by([&] { with_tensors(tensors, [](const EncodedTensor&) {}); });
  };
  TensorDict tensors = small_codes();
  tensors.set("format", torch::ones({}, torch::kUInt8));
  EXPECT_THAT(refusal(tensors), HasSubstr("the codes are stored in the order of a kernel"));
  tensors = small_codes();
  tensors.set("scales", torch::ones({3}));
  EXPECT_THAT(refusal(tensors), HasSubstr("scales"));
  tensors = small_codes();
  tensors.set("w", torch::ones({2, 3}));
  EXPECT_THAT(refusal(tensors), HasSubstr("the tensor is float32, but it has the scales scales"));
  with_tensors(small_codes(), [](const EncodedTensor& tensor) {
    EXPECT_THAT(thrown_by([&] { tensor.coded(WeightCode::kNf4); }), HasSubstr("set model.quantize to int8"));
  });
}

// A model of which one weight is stored in int8, by the names of transformers.
TEST(EightBit, WeightsOfAModelAreFoundByTheirScales) {
  const auto& family = models::families().at("llama");
  const nlohmann::json keys = {{"hidden_size", 8},       {"num_hidden_layers", 1}, {"num_attention_heads", 2},
                               {"intermediate_size", 6}, {"vocab_size", 11},       {"max_position_embeddings", 4}};
  const std::string weight = "model.layers.0.mlp.up_proj.weight", module = "model.layers.0.mlp.up_proj";
  const ScratchFolder scratch;
  const torch::Tensor codes = torch::arange(-24, 24, torch::kInt8).view({6, 8});
  write_safetensors(scratch / "model.safetensors", {{weight, codes},
                                                    {module + ".SCB", torch::full({6}, 127.F)},
                                                    {module + ".weight_format", torch::zeros({}, torch::kUInt8)}});
  const StoredModel model(scratch.path(), family, keys);
  EXPECT_EQ(model.names(), std::vector<std::string>{weight});
  EXPECT_TRUE(torch::equal(model.read(weight), codes.to(torch::kFloat32)));
}

}  // namespace
}  // namespace gantry::testing
