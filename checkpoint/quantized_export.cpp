#include "gantry/checkpoint/quantized_export.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

#include "gantry/checkpoint/eight_bit.h"
#include "gantry/checkpoint/four_bit.h"
#include "gantry/checkpoint/stored_names.h"
#include "gantry/core/error.h"
#include "gantry/models/adapter_modules.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/peft_names.h"
#include "gantry/models/quantize.h"
#include "gantry/policies/policy.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/double_scales.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/quantized_weight.h"

namespace gantry {
namespace {

using nlohmann::json;

// Layers by the family's names.
struct LayersToQuantize {
  std::set<std::string> weights;
  std::vector<std::string> others;  // modules with a matrix that keeps its type
};

LayersToQuantize layers_to_quantize(const std::string& family, const json& keys, WeightCode code) {
  const DeferredInit deferred;
  const auto& kind = models::families().at(family);
  if (!kind.other_parts.empty())
    throw UsageError({"--quantize",
                      "the " + family + " model has an image encoder, whose layers would have to be listed",
                      "a model of text", "export without --quantize"});
  const auto model = kind.build(keys);
  models::quantize_layers(*model, code, output_layers(*policies().at(family)(), *model), /*trains=*/false);
  const auto names = kind.tensor_names(keys);
  LayersToQuantize layers;
  const auto modules = models::coded_modules(*model);
  for (const auto& module : modules.coded) {
    const auto name = std::ranges::find(names, module + ".weight", &models::TensorName::name);
    if (name == names.end() || name->transposed || !name->parts.empty())
      throw UsageError(
          {"--quantize",
           models::hugging_face_path(module, names).path + " has another form in the files than in the model",
           "a model with linear layers that are stored as they are", "export without --quantize"});
    layers.weights.insert(name->hugging_face);
  }
  for (const auto& module : modules.others)
    layers.others.push_back(models::to_module_name(kind, models::hugging_face_path(module, names).path));
  return layers;
}

// The codes of a weight, quantised from the type that the export would write.
CodedWeight codes_of(const ExportTensor& weight, WeightCode code, torch::ScalarType type) {
  return quantize(code, weight.read().detach().to(torch::kCPU, type).to(torch::kFloat32).contiguous());
}

torch::Tensor two_in_a_byte(const torch::Tensor& codes) {
  const torch::Tensor flat = codes.reshape({-1}), even = torch::constant_pad_nd(flat, {0, flat.numel() % 2});
  const torch::Tensor pairs = even.view({-1, 2});
  return pairs.select(1, 0).bitwise_left_shift(4).bitwise_or(pairs.select(1, 1)).unsqueeze(1);
}

// The quantisation state in the order and with the spaces of bitsandbytes. `mean`: mean of the scales, with
// double quantization.
std::string state_of(const ExportTensor& weight, WeightCode code, torch::ScalarType type, std::optional<float> mean) {
  std::string nested;
  if (mean)
    nested = fmt::format(R"(, "nested_blocksize": {}, "nested_dtype": "float32", "nested_offset": {})", kScalesOfBlock,
                         json(static_cast<double>(*mean)).dump());
  return fmt::format(R"({{"quant_type": "{}", "blocksize": {}, "dtype": "{}", "shape": [{}, {}]{}}})", name_of(code),
                     kScaleBlock, dtype_name(type), weight.shape[0], weight.shape[1], nested);
}

torch::Tensor bytes_of_text(const std::string& text) {
  return torch::tensor(std::vector<std::uint8_t>(text.begin(), text.end()), torch::kUInt8);
}

// Returns one number of each block of elements.
torch::Tensor of_blocks(const torch::Tensor& numbers, std::int64_t block) {
  return numbers.reshape({-1}).slice(0, 0, std::nullopt, block);
}

ExportTensor entry(const ExportTensor& weight, const char* ending, Shape shape, torch::ScalarType type,
                   std::function<torch::Tensor()> read) {
  return {weight.name + ending, std::move(shape), type, std::move(read), /*keeps_type=*/true};
}

const char* ending_of_state(WeightCode code) { return std::string(name_of(code)) == "nf4" ? kNf4State : kFp4State; }

std::vector<ExportTensor> scale_entries(const ExportTensor& weight, WeightCode code, torch::ScalarType type) {
  const std::string state = state_of(weight, code, type, std::nullopt);
  return {entry(weight, kFourBitScales, {full_blocks(elements_of(weight.shape), kScaleBlock)}, torch::kFloat32,
                [=] { return of_blocks(codes_of(weight, code, type).scales, kScaleBlock); }),
          entry(weight, ending_of_state(code), {static_cast<std::int64_t>(state.size())}, torch::kUInt8,
                [=] { return bytes_of_text(state); })};
}

// The state contains the mean, but its size is needed before the mean is known. Therefore it is padded with
// spaces.
std::vector<ExportTensor> double_scale_entries(const ExportTensor& weight, WeightCode code, torch::ScalarType type) {
  constexpr std::int64_t kDoubleBlock = kScaleBlock * kScalesOfBlock;
  constexpr std::size_t kMostOfMean = 24;
  const std::int64_t elements = elements_of(weight.shape);
  const std::size_t most = state_of(weight, code, type, 0.F).size() + kMostOfMean;
  return {entry(weight, kFourBitScales, {full_blocks(elements, kScaleBlock)}, torch::kUInt8,
                [=] { return of_blocks(codes_of(weight, code, type).scale_codes, kScaleBlock); }),
          entry(weight, kFourBitNestedScales, {full_blocks(elements, kDoubleBlock)}, torch::kFloat32,
                [=] { return of_blocks(codes_of(weight, code, type).scales, kDoubleBlock); }),
          entry(weight, kFourBitNestedTable, {scale_table().size(0)}, torch::kFloat32, [] { return scale_table(); }),
          entry(weight, ending_of_state(code), {static_cast<std::int64_t>(most)}, torch::kUInt8, [=] {
            const float mean = codes_of(weight, code, type).means[0][0].item<float>();
            std::string state = state_of(weight, code, type, mean);
            state.resize(most, ' ');
            return bytes_of_text(state);
          })};
}

std::vector<ExportTensor> four_bit_entries(const ExportTensor& weight, WeightCode code, torch::ScalarType type) {
  std::vector<ExportTensor> entries = {
      entry(weight, "", {full_blocks(elements_of(weight.shape), 2), 1}, torch::kUInt8,
            [=] { return two_in_a_byte(codes_of(weight, code, type).codes); }),
      entry(weight, kFourBitTable, {16}, torch::kFloat32, [=] { return code_values(code); })};
  const auto scales = is_double(code) ? double_scale_entries(weight, code, type) : scale_entries(weight, code, type);
  entries.insert(entries.end(), scales.begin(), scales.end());
  return entries;
}

std::vector<ExportTensor> eight_bit_entries(const ExportTensor& weight, torch::ScalarType type) {
  const std::string module = weight.name.substr(0, weight.name.rfind('.'));
  const auto codes = [=] { return codes_of(weight, WeightCode::kInt8, type); };
  return {{weight.name, weight.shape, torch::kInt8, [=] { return codes().codes.view(torch::kInt8); }, true},
          {module + kEightBitScales,
           {weight.shape[0]},
           torch::kFloat32,
           [=] { return codes().scales.select(1, 0).contiguous(); },
           true},
          {module + kEightBitFormat, {}, torch::kUInt8, [] { return torch::zeros({}, torch::kUInt8); }, true}};
}

json bitsandbytes_keys(WeightCode code, torch::ScalarType type, const std::vector<std::string>& others) {
  const bool is_int8 = code == WeightCode::kInt8;
  json keys = {{"quant_method", "bitsandbytes"}, {"load_in_4bit", !is_int8}, {"load_in_8bit", is_int8}};
  if (!others.empty()) keys["llm_int8_skip_modules"] = others;
  if (!is_int8)
    keys.update({{"bnb_4bit_quant_type", name_of(code)},
                 {"bnb_4bit_use_double_quant", is_double(code)},
                 {"bnb_4bit_compute_dtype", dtype_name(type)},
                 {"bnb_4bit_quant_storage", "uint8"}});
  return keys;
}

}  // namespace

std::vector<ExportTensor> quantized_tensors(const std::vector<ExportTensor>& tensors, json& config,
                                            const ExportOptions& options) {
  const WeightCode code = *options.quantize;
  if (encodes_experts(code))
    throw UsageError({"--quantize", std::string("the value is ") + name_of(code) + ", which bitsandbytes does not have",
                      "nf4, fp4 or int8", "export without --quantize"});
  const std::string family = models::family_of(config);
  const LayersToQuantize layers = layers_to_quantize(family, config, code);
  const StoredNames known(models::families().at(family), config);
  std::vector<ExportTensor> written;
  torch::ScalarType last = torch::kFloat32;  // type of the last quantized layer
  for (const auto& tensor : tensors) {
    if (!layers.weights.contains(known.find(tensor.name))) {
      written.push_back(tensor);
      continue;
    }
    const torch::ScalarType asked = options.type.value_or(tensor.type);
    const torch::ScalarType type = asked == torch::kFloat64 ? torch::kFloat32 : asked;  // bitsandbytes has no float64
    last = type;
    const auto entries =
        code == WeightCode::kInt8 ? eight_bit_entries(tensor, type) : four_bit_entries(tensor, code, type);
    written.insert(written.end(), entries.begin(), entries.end());
  }
  config["quantization_config"] = bitsandbytes_keys(code, last, layers.others);
  return written;
}

}  // namespace gantry
