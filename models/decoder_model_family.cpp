#include "gantry/models/decoder_model_family.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/models/decoder.h"

namespace gantry::models {
namespace {

using nlohmann::json;

// The part of a registered name within its layer, "self_attn.q_proj"; empty outside of layers.
std::string path_in_layer(const DecoderSpec& spec, const std::string& name) {
  const std::string layers = spec.names.layers + ".";
  if (!name.starts_with(layers)) return "";
  const std::size_t begin = name.find('.', layers.size()) + 1;
  return name.substr(begin, name.rfind('.') - begin);
}

TensorName file_name(const FileNames& files, const DecoderSpec& spec, const std::string& name) {
  if (name.starts_with(spec.names.head + ".")) return {name, files.head + name.substr(spec.names.head.size())};
  TensorName tensor{name, files.prefix + name};
  const std::string path = path_in_layer(spec, name);
  for (const auto& [ours, theirs] : files.renamed) {
    if (path != ours) continue;
    const std::size_t at = name.find(ours, spec.names.layers.size());
    tensor.hugging_face = files.prefix + name.substr(0, at) + theirs + name.substr(at + ours.size());
  }
  tensor.transposed = name.ends_with(".weight") &&
                      std::find(files.transposed.begin(), files.transposed.end(), path) != files.transposed.end();
  return tensor;
}

std::vector<TensorName> tensor_names(const FileNames& files, const DecoderSpec& spec) {
  std::vector<TensorName> names;
  for (const auto& parameter : parameter_shapes(spec)) names.push_back(file_name(files, spec, parameter.name));
  return names;
}

std::string normalised(const FileNames& files, const std::string& name) {
  for (const auto& ending : files.ignored)
    if (name.ends_with(ending)) return "";
  if (name.starts_with(files.prefix) || name.starts_with(files.head + ".")) return name;
  const std::size_t dot = files.prefix.find('.') + 1;
  const std::string below = files.prefix.substr(dot);  // of "model.decoder.": what a bare model's files begin with
  return !below.empty() && name.starts_with(below) ? files.prefix.substr(0, dot) + name : files.prefix + name;
}

json whole_config(const DecoderFamily& family, const json& keys) {
  ConfigReader reader(keys, family.model_type);
  family.read(reader);
  json whole = keys;
  for (const auto& [key, value] : reader.values().items()) whole[key] = value;
  whole["model_type"] = family.model_type;
  whole["architectures"] = {family.architecture};
  // transformers' own defaults lie outside a smaller vocabulary.
  for (const char* token : {"bos_token_id", "eos_token_id"})
    if (!whole.contains(token)) whole[token] = nullptr;
  return whole;
}

}  // namespace

ModelFamily model_family(const DecoderFamily& family) {
  const auto spec = [family](const json& keys) { return decoder_spec(family, keys); };
  return {.build = [spec](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<DecoderImpl>(spec(keys));
          },
          .tensor_names = [family, spec](const json& keys) { return tensor_names(family.files, spec(keys)); },
          .hugging_face_config = [family](const json& keys) { return whole_config(family, keys); },
          .model_type = family.model_type,
          .architectures = {family.architecture},
          .vocabulary_size = [spec](const json& keys) { return spec(keys).vocabulary; },
          .context_length = [spec](const json& keys) { return spec(keys).positions; },
          .normalise_name = [family](const json&, const std::string& name) { return normalised(family.files, name); },
          .is_other_heads =  // a tied head may be stored beside the embedding that it equals
          [family, spec](const json& keys, const std::string& name) {
            return name == family.files.head + ".weight" && spec(keys).tied;
          },
          .deciding_keys =
              [family](const json& keys) {
                ConfigReader reader(keys, family.model_type);
                family.read(reader);
                return reader.deciding();
              },
          .check = [spec](const json& keys) { spec(keys); }};
}

}  // namespace gantry::models
