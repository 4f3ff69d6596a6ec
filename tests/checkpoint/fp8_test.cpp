// Weights of eight bits with scales, as DeepSeek-V3 and Qwen3's FP8 versions are published.
#include "gantry/checkpoint/fp8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

torch::Tensor as_fp8(const torch::Tensor& bytes) { return bytes.view(torch::kFloat8_e4m3fn); }

torch::Tensor decoded(const EncodedTensor& tensor) {
  std::vector<torch::Tensor> parts;
  for (std::int64_t row = 0; row < tensor.shape().front(); row += tensor.rows_at_once())
    parts.push_back(tensor.decode({row, std::min(row + tensor.rows_at_once(), tensor.shape().front())}));
  return torch::cat(parts);
}

TEST(Fp8, ValuesAreNumpys) {
  const ScratchFolder scratch;
  const TensorDict golden = read_safetensors(GANTRY_SOURCE_DIR "/tests/golden/weights/fp8.safetensors");
  for (const std::string name : {"blocks", "narrow", "rows", "whole", "stack"}) {
    const std::string path = scratch / (name + ".safetensors");
    write_safetensors(path, {{"w", as_fp8(golden.at(name + ".stored"))}, {"s", golden.at(name + ".scales")}});
    const SafetensorsFile file(path);
    const auto tensor = fp8_tensor({&file, "w"}, {&file, "s"}, {});
    EXPECT_EQ(tensor->shape(), golden.at(name + ".values").sizes().vec());
    EXPECT_TRUE(torch::equal(decoded(*tensor), golden.at(name + ".values"))) << name;
    const CodedWeight coded = tensor->coded(WeightCode::kFp8).value();
    EXPECT_TRUE(torch::equal(values_of(WeightCode::kFp8, coded), golden.at(name + ".values"))) << name;
    EXPECT_FALSE(tensor->coded(WeightCode::kNf4)) << name;
  }
}

TEST(Fp8, CodesOfAnotherTypeAreRefused) {
  const ScratchFolder scratch;
  write_safetensors(scratch / "w.safetensors",
                    {{"w", torch::zeros({2, 2}).to(torch::kFloat8_e5m2)}, {"w_scale", torch::ones({})}});
  const SafetensorsFile file(scratch / "w.safetensors");
  const auto tensor = fp8_tensor({&file, "w"}, {&file, "w_scale"}, {});
  try {
    tensor->coded(WeightCode::kFp8);
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "w: the weight is stored in float8_e5m2; expected float8_e4m3fn with model.quantize: fp8; remove "
                 "model.quantize: the weights are then decoded");
  }
}

TEST(Fp8, TallWeightsAreDecodedInPieces) {
  const ScratchFolder scratch;
  torch::manual_seed(9);
  const torch::Tensor stored = as_fp8(torch::randint(0, 120, {70'000, 130}, torch::kUInt8));
  const torch::Tensor scales = torch::rand({547, 2});
  write_safetensors(scratch / "w.safetensors", {{"w", stored}, {"s", scales}});
  const SafetensorsFile file(scratch / "w.safetensors");
  const auto tensor = fp8_tensor({&file, "w"}, {&file, "s"}, {});
  EXPECT_LT(tensor->rows_at_once(), 40'000);
  const torch::Tensor wide = scales.repeat_interleave(128, 0).narrow(0, 0, 70'000);
  const torch::Tensor values = decoded(*tensor);
  EXPECT_TRUE(
      torch::equal(values.narrow(1, 0, 128), stored.narrow(1, 0, 128).to(torch::kFloat32) * wide.narrow(1, 0, 1)));
  EXPECT_TRUE(
      torch::equal(values.narrow(1, 128, 2), stored.narrow(1, 128, 2).to(torch::kFloat32) * wide.narrow(1, 1, 1)));
}

TEST(Fp8, OtherScalesAreRefused) {
  const ScratchFolder scratch;
  const auto refusal = [&](const torch::Tensor& scales) -> std::string {
    const std::string path = scratch / "w.safetensors";
    write_safetensors(path, {{"w", as_fp8(torch::zeros({200, 140}, torch::kUInt8))}, {"w_scale_inv", scales}});
    const SafetensorsFile file(path);
    try {
      fp8_tensor({&file, "w"}, {&file, "w_scale_inv"}, {});
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(torch::ones({2, 2})), "");
  EXPECT_THAT(refusal(torch::ones({3, 2})),
              HasSubstr("w_scale_inv: the scales have the shape [3, 2] for a weight [200, 140]"));
  EXPECT_THAT(refusal(torch::ones({2, 2}, torch::kInt32)), HasSubstr("the scales are int32; expected real numbers"));
}

// A model whose matrices have eight bits and scales, and the same model with decoded matrices.
struct TwoModels {
  TensorDict encoded, plain;
};

TwoModels two_models(const TensorDict& tensors, const std::string& ending, std::int64_t block) {
  torch::manual_seed(8);
  TwoModels models;
  for (const auto& [name, tensor] : tensors) {
    const bool is_layers = tensor.dim() == 2 && name.find("layers.") != std::string::npos &&
                           name.find("norm") == std::string::npos && !name.ends_with("mlp.gate.weight");
    if (!is_layers) {
      models.encoded.set(name, tensor);
      models.plain.set(name, tensor);
      continue;
    }
    const torch::Tensor stored = as_fp8(torch::randint(0, 120, tensor.sizes(), torch::kUInt8));
    const auto blocks = [&](int dim) { return (tensor.size(dim) + block - 1) / block; };
    const torch::Tensor scales = block == 0 ? torch::rand({}) * 1e-3 : torch::rand({blocks(0), blocks(1)}) * 1e-3;
    models.encoded.set(name, stored);
    models.encoded.set(name + ending, scales);
    torch::Tensor values = stored.to(torch::kFloat32);
    for (std::int64_t row = 0; row < values.size(0); ++row)
      for (std::int64_t column = 0; column < values.size(1); ++column)
        values[row][column] *= block == 0 ? scales : scales[row / block][column / block];
    models.plain.set(name, values);
  }
  return models;
}

void expect_same_models(const std::string& family, const std::string& ending, std::int64_t block) {
  const ScratchFolder scratch;
  const std::string folder = GANTRY_SOURCE_DIR "/tests/golden/families/" + family;
  const TwoModels models = two_models(read_safetensors(folder + "/model.safetensors"), ending, block);
  std::vector<std::vector<HeldTensor>> held;
  const json keys = json::parse(read_file(folder + "/config.json"));
  const auto& described = models::families().at(models::family_of(keys));
  for (const auto* tensors : {&models.encoded, &models.plain}) {
    write_safetensors(scratch / "model.safetensors", *tensors);
    const auto model = described.build(keys);
    held.push_back(full_parameters(*model));
    const LoadedModel found = load_hugging_face(scratch.path(), described, keys, held.back(), {});
    EXPECT_TRUE(found.fresh.empty() && found.passed_over.empty());
  }
  for (std::size_t i = 0; i < held[0].size(); ++i)
    EXPECT_TRUE(torch::equal(held[0][i].tensor, held[1][i].tensor)) << family << " " << held[0][i].placement.name;
}

TEST(Fp8, ModelsHaveTheValuesOfTheirBlocks) {
  expect_same_models("deepseek_v3", "_scale_inv", kFp8Block);
  expect_same_models("qwen3", "_scale_inv", kFp8Block);
  expect_same_models("qwen3", "_scale", 0);
}

}  // namespace
}  // namespace gantry::testing
