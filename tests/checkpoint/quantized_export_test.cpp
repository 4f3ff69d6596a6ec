// Models that are written in the layout of bitsandbytes.
#include "gantry/checkpoint/quantized_export.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/checkpoint/stored_model.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kGoldens = GANTRY_SOURCE_DIR "/tests/golden/";

// The decoded tensors of a directory, in float32.
std::vector<ExportTensor> decoded_tensors(const std::string& directory, const json& config) {
  const auto model =
      std::make_shared<const StoredModel>(directory, models::families().at(models::family_of(config)), config);
  std::vector<ExportTensor> tensors;
  for (const auto& name : model->names())
    tensors.push_back({model->stored_name(name), model->shape(name), torch::kFloat32,
                       [model, name] { return model->read(name).to(torch::kFloat32); }});
  return tensors;
}

// A directory of bitsandbytes, and its weights decoded and written again.
struct WrittenAgain {
  json config;
  TensorDict written, theirs;
};

WrittenAgain written_again(const std::string& golden, WeightCode code, const std::string& output) {
  const json config = read_model_config(golden);
  json plain = config;
  plain.erase("quantization_config");
  save_hugging_face(output, plain, decoded_tensors(golden, config), {.quantize = code});
  return {config, read_safetensors(output + "/model.safetensors"), read_safetensors(golden + "/model.safetensors")};
}

// Decoded files of bitsandbytes are written again without changes, because each block's largest value is a
// code.
TEST(QuantizedExport, HasTheTensorsOfBitsandbytes) {
  const ScratchFolder scratch;
  const auto [config, written, theirs] = written_again(kGoldens + "lora/qlora_nf4", WeightCode::kNf4, scratch / "out");
  ASSERT_EQ(written.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) {
    ASSERT_TRUE(written.contains(name)) << name;
    if (!name.ends_with("bitsandbytes__nf4"))
      EXPECT_TRUE(torch::equal(written.at(name), tensor)) << name;
    else  // the original type is float32 here
      EXPECT_EQ(written.at(name).numel(), tensor.numel() - 1) << name;
  }
  const json keys = read_model_config(scratch / "out");
  EXPECT_EQ(keys["dtype"], "float32");
  EXPECT_EQ(keys["quantization_config"]["llm_int8_skip_modules"], json({"lm_head"}));
  for (const char* key : {"quant_method", "load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type",
                          "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "bnb_4bit_use_double_quant"})
    EXPECT_EQ(keys["quantization_config"][key], config["quantization_config"][key]) << key;
}

// The names, types and sizes of bitsandbytes' files. Their scales are not those of the decoded weights.
TEST(QuantizedExport, HasTheTensorsOfDoubleQuantization) {
  const ScratchFolder scratch;
  const auto [config, written, theirs] =
      written_again(kGoldens + "lora/qlora_nf4_double", WeightCode::kNf4Double, scratch / "out");
  ASSERT_EQ(written.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) {
    ASSERT_TRUE(written.contains(name)) << name;
    const torch::Tensor& mine = written.at(name);
    EXPECT_EQ(mine.scalar_type(), tensor.scalar_type()) << name;
    if (name.ends_with(".nested_quant_map")) EXPECT_TRUE(torch::equal(mine, tensor)) << name;
    if (!name.ends_with("bitsandbytes__nf4")) {
      EXPECT_EQ(mine.sizes(), tensor.sizes()) << name;
      continue;
    }
    const auto keys_of = [](const torch::Tensor& text) {
      const auto* first = text.const_data_ptr<std::uint8_t>();
      return nlohmann::ordered_json::parse(first, first + text.numel());
    };
    auto expected = keys_of(tensor), found = keys_of(mine);
    EXPECT_NEAR(found["nested_offset"].get<double>(), expected["nested_offset"].get<double>(), 1e-2) << name;
    expected["nested_offset"] = found["nested_offset"];
    expected["dtype"] = "float32";
    EXPECT_EQ(found.dump(), expected.dump()) << name;
  }
  EXPECT_EQ(read_model_config(scratch / "out")["quantization_config"]["bnb_4bit_use_double_quant"], true);
}

TEST(QuantizedExport, IsReadBackToTheSameCodes) {
  for (const WeightCode code :
       {WeightCode::kNf4, WeightCode::kFp4, WeightCode::kInt8, WeightCode::kNf4Double, WeightCode::kFp4Double}) {
    SCOPED_TRACE(fmt::format("{}{}", name_of(code), is_double(code) ? " double" : ""));
    const ScratchFolder scratch;
    merge_adapter(kGoldens + "lora/own_tokens/adapter", kGoldens + "lora/own_tokens", scratch / "plain");
    merge_adapter(kGoldens + "lora/own_tokens/adapter", kGoldens + "lora/own_tokens", scratch / "coded",
                  {.quantize = code, .most_shard_bytes = 20'000});
    const TensorDict plain = read_safetensors(scratch / "plain/model.safetensors");
    const json config = read_model_config(scratch / "coded");
    const StoredModel coded(scratch / "coded", models::families().at("mixtral"), config);
    int found = 0;
    for (const auto& [name, tensor] : plain) {
      const EncodedTensor* encoded = coded.encoded(name);
      ASSERT_EQ(encoded != nullptr, name.find("self_attn") != std::string::npos) << name;
      if (!encoded) {
        EXPECT_TRUE(torch::equal(coded.read(name), tensor)) << name;
        continue;
      }
      ++found;
      const CodedWeight expected = quantize(code, tensor), read = *encoded->coded(code);
      EXPECT_TRUE(torch::equal(read.codes, expected.codes)) << name;
      EXPECT_TRUE(torch::equal(read.scales, expected.scales)) << name;
      if (is_double(code)) {
        EXPECT_TRUE(torch::equal(read.scale_codes, expected.scale_codes)) << name;
        EXPECT_TRUE(torch::equal(read.means, expected.means)) << name;
        EXPECT_TRUE(torch::equal(coded.read(name).to(torch::kFloat32), values_of(code, expected))) << name;
      }
    }
    EXPECT_EQ(config["quantization_config"].value("bnb_4bit_use_double_quant", false), is_double(code));
    EXPECT_EQ(found, 2 * 4);
    EXPECT_THAT(config["quantization_config"]["llm_int8_skip_modules"].get<std::vector<std::string>>(),
                ::testing::Contains("lm_head"));
  }
}

// The last code of an odd number has no partner, and its block is not full.
TEST(QuantizedExport, OddNumbersOfElements) {
  const ScratchFolder scratch;
  json config = read_model_config(kGoldens + "lora/qlora_nf4");
  config.erase("quantization_config");
  config.update({{"hidden_size", 13},
                 {"intermediate_size", 11},
                 {"num_attention_heads", 3},
                 {"num_key_value_heads", 1},
                 {"num_hidden_layers", 1},
                 {"head_dim", 2}});
  torch::manual_seed(3);
  std::vector<ExportTensor> tensors;
  const auto& family = models::families().at("llama");
  const auto model = family.build(config);
  TensorDict values;
  for (const auto& name : family.tensor_names(config)) {
    const torch::Tensor value = torch::randn(model->named_parameters()[name.name].sizes());
    values.set(name.hugging_face, value);
    tensors.push_back({name.hugging_face, value.sizes().vec(), torch::kFloat32, [value] { return value; }});
  }
  save_hugging_face(scratch / "out", config, tensors, {.quantize = WeightCode::kFp4});
  const StoredModel coded(scratch / "out", family, read_model_config(scratch / "out"));
  const std::string name = "model.layers.0.mlp.gate_proj.weight";  // [11, 13]
  ASSERT_NE(coded.encoded(name), nullptr);
  const CodedWeight expected = quantize(WeightCode::kFp4, values.at(name)),
                    read = *coded.encoded(name)->coded(WeightCode::kFp4);
  EXPECT_TRUE(torch::equal(read.codes, expected.codes));
  EXPECT_TRUE(torch::equal(read.scales, expected.scales));
}

TEST(QuantizedExport, RefusesWeightsThatAreStoredTransposed) {
  const ScratchFolder scratch;
  EXPECT_THAT(thrown_by([&] {
                merge_adapter(kGoldens + "lora/tied_tables/adapter", kGoldens + "lora/tied_tables", scratch / "out",
                              {.quantize = WeightCode::kNf4});
              }),
              HasSubstr("--quantize: transformer.h.0.attn.c_attn has another form in the files than in the model"));
}

// transformers would convert the layers of the encoder, too.
TEST(QuantizedExport, RefusesModelsWithAnImageEncoder) {
  json config = json::parse(read_file(kGoldens + "families/gemma3_mm/config.json"));
  EXPECT_THAT(thrown_by([&] { quantized_tensors({}, config, {.quantize = WeightCode::kFp8}); }),
              HasSubstr("--quantize: the value is fp8, which bitsandbytes does not have"));
  EXPECT_THAT(thrown_by([&] { quantized_tensors({}, config, {.quantize = WeightCode::kNf4}); }),
              HasSubstr("--quantize: the gemma3 model has an image encoder"));
}

}  // namespace
}  // namespace gantry::testing
