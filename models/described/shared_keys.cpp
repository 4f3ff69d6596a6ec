#include "gantry/models/described/shared_keys.h"

#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/models/described/config_keys.h"

namespace gantry::models {
namespace {

using nlohmann::json;

std::string dtype_name(const json& value) {
  const std::string name = value.is_string() ? value.get<std::string>() : value.dump();
  return name.starts_with("torch.") ? name.substr(6) : name;
}

void read_dtype(ConfigReader& reader) {
  for (const char* key : {"dtype", "torch_dtype"}) reader.ignore(key);
  if (!reader.has("dtype") || !reader.has("torch_dtype")) return;
  const json &newer = reader.keys()["dtype"], &older = reader.keys()["torch_dtype"];
  if (dtype_name(newer) != dtype_name(older))
    refuse_key("dtype", newer, fmt::format("the value of its older spelling torch_dtype, which is {}", older.dump()));
}

// The kind of quantisation as its users call it.
std::string kind_name(const json& how) {
  static const std::map<std::string, std::string> names = {{"aqlm", "AQLM"},      {"auto-round", "AutoRound"},
                                                           {"awq", "AWQ"},        {"bitnet", "BitNet"},
                                                           {"eetq", "EETQ"},      {"exl2", "ExLlamaV2"},
                                                           {"exl3", "ExLlamaV3"}, {"fbgemm_fp8", "FBGEMM fp8"},
                                                           {"fp8", "fp8"},        {"gptq", "GPTQ"},
                                                           {"hqq", "HQQ"},        {"modelopt", "ModelOpt"},
                                                           {"mxfp4", "MXFP4"},    {"torchao", "torchao"},
                                                           {"quanto", "Quanto"},  {"vptq", "VPTQ"},
                                                           {"quark", "Quark"},    {"bitsandbytes", "bitsandbytes"}};
  const auto method = how.is_object() ? how.value("quant_method", json()) : json();
  if (!method.is_string()) return how.is_object() && how.contains("group_size") ? "MLX" : "an unknown method";
  const auto known = names.find(method.get<std::string>());
  return known == names.end() ? method.get<std::string>() : known->second;
}

std::string bits_of(const json& how) {
  if (!how.is_object()) return "";
  for (const char* key : {"bits", "w_bit"})
    if (how.contains(key) && how[key].is_number_integer()) return fmt::format(" in {} bits", how[key].dump());
  if (how.value("load_in_8bit", json()) == true) return " in 8 bits";
  if (how.value("load_in_4bit", json()) == true) return " in 4 bits";
  return "";
}

[[noreturn]] void refuse_quantisation(const std::string& key, const std::string& kind) {
  throw ConfigError({"model.config." + key, "the weights are quantised by " + kind + ", which Gantry does not read",
                     "weights in float16, bfloat16, float32, fp8 with weight_block_size, 4 or 8 bits by bitsandbytes, "
                     "or MXFP4 of gpt_oss",
                     "use the repository with the unquantised weights"});
}

// NF4 and FP4, or int8.
bool is_by_bitsandbytes(const json& how) {
  return how.is_object() && how.value("quant_method", json()) == "bitsandbytes" &&
         (how.value("load_in_4bit", json()) == true) != (how.value("load_in_8bit", json()) == true);
}

void read_quantisation(ConfigReader& reader) {
  for (const char* key : {"quantization", "quantization_config", "compression_config"}) {
    reader.ignore(key);
    if (!reader.has(key)) continue;
    const json& how = reader.keys()[key];
    if (fp8_block({{"quantization_config", how}}) || is_by_bitsandbytes(how)) continue;
    const json method = how.is_object() ? how.value("quant_method", json()) : json();
    if (method == "mxfp4" && reader.family() == "gpt_oss") continue;
    const bool is_mlx = key == std::string("quantization") || (method.is_null() && reader.has("quantization"));
    const std::string kind = is_mlx                                     ? "MLX"
                             : key == std::string("compression_config") ? "compressed-tensors"
                                                                        : kind_name(how);
    refuse_quantisation(key, method == "fp8" ? "fp8 without weight_block_size" : kind + bits_of(how));
  }
}

}  // namespace

void read_shared_keys(ConfigReader& reader, bool has_cross_attention) {
  reader.only("model_type", reader.family());
  reader.only("per_layer_config", nullptr, "Gantry does not support sizes that differ between layers");
  for (const char* key : {"add_cross_attention", "is_decoder", "pruned_heads"}) reader.ignore(key);
  if (!has_cross_attention)
    reader.only("add_cross_attention", false, "a " + reader.family() + " model of Gantry has no cross-attention");
  read_dtype(reader);
  read_quantisation(reader);
}

std::string stated_dtype(const json& keys) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!has_key(keys, key)) continue;
    const std::string name = dtype_name(keys[key]);
    for (const char* precision : {"float32", "bfloat16", "float16", "float64"})
      if (name == precision) return name;
  }
  return has_key(keys, kTextConfig) && keys[kTextConfig].is_object() ? stated_dtype(keys[kTextConfig]) : "";
}

std::optional<std::array<std::int64_t, 2>> fp8_block(const json& keys) {
  const json how = keys.value("quantization_config", json());
  if (!how.is_object() || how.value("quant_method", json()) != "fp8") return std::nullopt;
  const json block = how.value("weight_block_size", json());
  const auto is_size = [](const json& size) { return size.is_number_integer() && size.get<std::int64_t>() > 0; };
  if (!block.is_array() || block.size() != 2 || !is_size(block[0]) || !is_size(block[1])) return std::nullopt;
  return std::array{block[0].get<std::int64_t>(), block[1].get<std::int64_t>()};
}

}  // namespace gantry::models
