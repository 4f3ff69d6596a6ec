// Weights of four bits with scales, as bitsandbytes stores them.
#include "gantry/checkpoint/four_bit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/checkpoint/stored_model.h"
#include "gantry/core/error.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

torch::Tensor as_bytes(const std::string& text) {
  return torch::tensor(std::vector<std::uint8_t>(text.begin(), text.end()), torch::kUInt8);
}

// A weight [3, 5] in blocks of 4 elements, the last one of 3, with the values of FP4.
struct SmallWeight {
  json state = {{"quant_type", "fp4"}, {"blocksize", 4}, {"dtype", "float16"}, {"shape", {3, 5}}};
  torch::Tensor codes = torch::tensor({0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xe0}, torch::kUInt8).view({8, 1});
  torch::Tensor scales = torch::tensor({1.F, 2.F, 4.F, 8.F});
  torch::Tensor table = torch::arange(16, torch::kFloat32) - 3;

  TensorDict tensors() const {
    return {{"w", codes}, {"w.state", as_bytes(state.dump())}, {"w.absmax", scales}, {"w.quant_map", table}};
  }
  torch::Tensor values() const {
    return torch::tensor({-3., -2., -1., 0., 2., 4., 6., 8., 20., 24., 28., 32., 72., 80., 88.}, torch::kFloat32)
        .view({3, 5});
  }
};

// Returns the decoded weight. Checks that decoding single rows gives the same values.
torch::Tensor decoded_by_rows(const TensorDict& tensors) {
  const ScratchFolder scratch;
  write_safetensors(scratch / "w.safetensors", tensors);
  const SafetensorsFile file(scratch / "w.safetensors");
  FourBitPlaces places{WeightCode::kFp4, {&file, "w"}, {&file, "w.state"}, {&file, "w.absmax"}, {&file, "w.quant_map"}};
  if (tensors.contains("w.nested_absmax")) places.nested_scales = TensorPlace{&file, "w.nested_absmax"};
  if (tensors.contains("w.nested_quant_map")) places.nested_table = TensorPlace{&file, "w.nested_quant_map"};
  const auto tensor = four_bit_tensor(places);
  const torch::Tensor full = tensor->decode({0, tensor->shape().front()});
  for (std::int64_t row = 0; row < full.size(0); ++row)
    EXPECT_TRUE(torch::equal(tensor->decode({row, row + 1}), full.narrow(0, row, 1))) << row;
  return full;
}

TEST(FourBit, CodesScalesAndTheLastBlock) {
  SmallWeight weight;
  EXPECT_TRUE(torch::equal(decoded_by_rows(weight.tensors()), weight.values()));
  weight.codes = weight.codes.view({-1}).view(torch::kBFloat16).view({4, 1});  // bnb_4bit_quant_storage: bfloat16
  EXPECT_TRUE(torch::equal(decoded_by_rows(weight.tensors()), weight.values()));
}

TEST(FourBit, ScalesThatAreQuantisedThemselves) {
  SmallWeight weight;
  weight.state.update({{"nested_blocksize", 3}, {"nested_offset", 0.5}});
  weight.scales = torch::tensor({1, 3, 7, 255}, torch::kUInt8);
  TensorDict tensors = weight.tensors();
  tensors.set("w.nested_absmax", torch::tensor({0.5F, 0.25F}));
  tensors.set("w.nested_quant_map", torch::where(torch::arange(256) == 255, 30., torch::arange(256)).to(torch::kFloat));
  EXPECT_TRUE(torch::equal(decoded_by_rows(tensors), weight.values()));
}

// Returns the error for a weight that `change` has changed.
template <class Change>
std::string four_bit_error(const Change& change) {
  SmallWeight weight;
  change(weight);
  return thrown_by([&] { decoded_by_rows(weight.tensors()); });
}

TEST(FourBit, OtherStatesAndShapesAreRefused) {
  const auto with = [](const char* key, const json& value) {
    return four_bit_error([&](SmallWeight& weight) { weight.state[key] = value; });
  };
  EXPECT_EQ(with("quant_type", "nf4"), "no error");
  EXPECT_THAT(with("blocksize", 0), HasSubstr("w.state: the blocksize is 0; expected a positive"));
  EXPECT_THAT(with("blocksize", 5), HasSubstr("w.absmax: the tensor has the shape [4]; expected [3]"));
  EXPECT_THAT(with("dtype", "int8"), HasSubstr("w.state: the dtype is \"int8\""));
  for (const json& shape : {json::array({3}), json::array({3, -5}), json(15), json::array({1LL << 40, 1LL << 40})})
    EXPECT_THAT(with("shape", shape), HasSubstr("w.state: the shape is "));
  EXPECT_THAT(with("shape", {3, 6}), HasSubstr("w: the codes have 8 bytes for a weight [3, 6]; expected 9 bytes"));
  EXPECT_THAT(with("nested_blocksize", 4), HasSubstr("w.state: the nested_offset is null"));
  EXPECT_THAT(four_bit_error([](SmallWeight& weight) { weight.table = torch::zeros({8}); }),
              HasSubstr("w.quant_map: the tensor has the shape [8]; expected [16]"));
  EXPECT_THAT(four_bit_error([](SmallWeight& weight) { weight.scales = weight.scales.to(torch::kUInt8); }),
              HasSubstr("w.absmax: the tensor is uint8; expected real numbers"));
  EXPECT_THAT(four_bit_error([](SmallWeight& weight) {
                weight.state.update({{"nested_blocksize", 4}, {"nested_offset", 0}});
                weight.scales = weight.scales.to(torch::kUInt8);
              }),
              HasSubstr("the scales are quantised, but their own scales or values are missing"));
  EXPECT_THAT(thrown_by([] {
                TensorDict tensors = SmallWeight().tensors();
                tensors.set("w.state", as_bytes("{"));
                decoded_by_rows(tensors);
              }),
              HasSubstr("w.state: the quantisation state is not valid"));
}

// The scales of the files stay codes, with their values.
TEST(FourBit, CodesOfScalesAreKept) {
  const std::string folder = GANTRY_SOURCE_DIR "/tests/golden/lora/qlora_nf4_double";
  const StoredModel model(folder, models::families().at("llama"), json::parse(read_file(folder + "/config.json")));
  const TensorDict stored = read_safetensors(folder + "/model.safetensors");
  int found = 0;
  for (const auto& name : model.names()) {
    const EncodedTensor* encoded = model.encoded(name);
    if (!encoded) continue;
    ++found;
    const CodedWeight kept = *encoded->coded(WeightCode::kNf4Double);
    EXPECT_TRUE(torch::equal(values_of(WeightCode::kNf4Double, kept), model.read(name).to(torch::kFloat32))) << name;
    const torch::Tensor of_block = kept.scale_codes.reshape({-1}).slice(0, 0, std::nullopt, kScaleBlock);
    EXPECT_TRUE(torch::equal(of_block, stored.at(name + ".absmax"))) << name;
  }
  EXPECT_EQ(found, 7);
}

TEST(FourBit, OtherCodesOfScalesAreRefused) {
  SmallWeight weight;
  weight.table = code_values(WeightCode::kFp4);
  TensorDict tensors = weight.tensors();
  const auto refusal = [&](WeightCode code) {
    const ScratchFolder scratch;
    write_safetensors(scratch / "w.safetensors", tensors);
    const SafetensorsFile file(scratch / "w.safetensors");
    FourBitPlaces places{
        WeightCode::kFp4, {&file, "w"}, {&file, "w.state"}, {&file, "w.absmax"}, {&file, "w.quant_map"}};
    if (tensors.contains("w.nested_absmax")) places.nested_scales = TensorPlace{&file, "w.nested_absmax"};
    if (tensors.contains("w.nested_quant_map")) places.nested_table = TensorPlace{&file, "w.nested_quant_map"};
    return thrown_by([&] { four_bit_tensor(places)->coded(code); });
  };
  EXPECT_EQ(refusal(WeightCode::kFp4), "no error");
  EXPECT_THAT(refusal(WeightCode::kNf4Double), HasSubstr("w: the weight is stored in fp4"));
  EXPECT_THAT(refusal(WeightCode::kFp4Double),
              HasSubstr("w.absmax: the scales are stored without double quantization; expected codes of 8 bits, as in "
                        "model.quantize_double; remove model.quantize_double"));
  weight.state.update({{"nested_blocksize", 3}, {"nested_offset", 0.5}});
  weight.scales = torch::tensor({1, 3, 7, 255}, torch::kUInt8);
  tensors = weight.tensors();
  tensors.set("w.nested_absmax", torch::tensor({0.5F, 0.25F}));
  tensors.set("w.nested_quant_map", torch::arange(256).to(torch::kFloat));
  EXPECT_EQ(refusal(WeightCode::kFp4), "no error");
  EXPECT_THAT(
      refusal(WeightCode::kFp4Double),
      HasSubstr("w.nested_quant_map: the values of the codes are not those of bitsandbytes; expected its dynamic "
                "map of 8 bits; remove model.quantize_double: the scales are then decoded"));
}

class FourBitModels : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return GANTRY_SOURCE_DIR "/tests/golden/lora/" + GetParam(); }
  json keys() const { return json::parse(read_file(folder() + "/config.json")); }
};
INSTANTIATE_TEST_SUITE_P(Cases, FourBitModels, ::testing::Values("qlora_nf4", "qlora_nf4_double"),
                         [](const auto& info) { return info.param; });

TEST_P(FourBitModels, HaveTheReferencesValuesBitwise) {
  const StoredModel model(folder(), models::families().at("llama"), keys());
  const TensorDict expected = read_safetensors(folder() + "/dequantised.safetensors");
  EXPECT_GE(expected.size(), 4);
  for (const auto& [name, values] : expected) {
    ASSERT_NE(model.encoded(name), nullptr) << name;
    EXPECT_TRUE(torch::equal(model.read(name), values)) << name;
    EXPECT_EQ(model.type(name), torch::kBFloat16);
  }
  for (const auto& name : model.names()) EXPECT_TRUE(model.known_names().is_known(name)) << name;
}

TEST(FourBitConfigurations, AreExportedWithoutTheirQuantisation) {
  for (const std::string folder : {"lora/qlora_nf4", "heads/bert_single"}) {
    json keys = json::parse(read_file(GANTRY_SOURCE_DIR "/tests/golden/" + folder + "/config.json"));
    keys["quantization_config"] = {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}};
    const json full = models::families().at(models::family_of(keys)).hugging_face_config(keys);
    EXPECT_FALSE(full.contains("quantization_config")) << folder;
  }
}

TEST_P(FourBitModels, WithoutOneOfTheirTensorsAreRefused) {
  const std::string weight = "model.layers.0.self_attn.q_proj.weight";
  const TensorDict all = read_safetensors(folder() + "/model.safetensors");
  for (const std::string part : {"", ".absmax", ".quant_map"}) {
    const ScratchFolder scratch;
    TensorDict kept;
    for (const auto& [name, tensor] : all)
      if (name != weight + part) kept.set(name, tensor);
    write_safetensors(scratch / "model.safetensors", kept);
    EXPECT_THAT(thrown_by([&] { StoredModel(scratch.path(), models::families().at("llama"), keys()); }),
                HasSubstr("the quantisation state belongs to " + weight + part + ", which is missing"));
  }
}

}  // namespace
}  // namespace gantry::testing
