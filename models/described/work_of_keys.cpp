#include "gantry/models/described/work_of_keys.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gantry/core/slice.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/decoder_family.h"

namespace gantry::models {
namespace {

using nlohmann::json;

double elements(const ParameterShape& parameter) {
  return parameter.used * static_cast<double>(elements_of(parameter.shape));
}

// By its head, whose own default is the masked language model's. Those that look at the first token alone are no work.
double bert_head(const json& keys, double hidden) {
  const json named = keys.value("architectures", json("BertForMaskedLM"));
  const json& architecture = named.is_array() && !named.empty() ? named.front() : named;
  if (architecture == "BertForQuestionAnswering") return 2 * hidden;
  const auto vocabulary = static_cast<double>(size_key(keys, "vocab_size", 30522));
  return architecture == "BertForMaskedLM" ? hidden * (vocabulary + hidden) : 0;
}

LayerWork bert_work(const json& keys, int layers) {
  const auto hidden = static_cast<double>(size_key(keys, "hidden_size", 768));
  const auto inner = static_cast<double>(size_key(keys, "intermediate_size", 3072));
  return {.layers = std::vector<double>(layers, hidden * (4 * hidden + 2 * inner)), .last = bert_head(keys, hidden)};
}

}  // namespace

// Matrices of layers, by the index in their names.
LayerWork layer_work_of(const DecoderSpec& spec) {
  LayerWork work{std::vector<double>(spec.layers.size(), 0.0)};
  const std::string layers = spec.names.layers + ".";
  for (const ParameterShape& parameter : parameter_shapes(spec))
    if (parameter.shape.size() > 1 && !parameter.name.ends_with("_bias") && parameter.name.starts_with(layers))
      work.layers[std::stoul(parameter.name.substr(layers.size()))] += elements(parameter);
  work.last = static_cast<double>(spec.vocabulary) * static_cast<double>(spec.hidden);
  return work;
}

json keys_of_model(const ModelConfig& model) {
  json keys = json::object();
  if (std::ifstream file(model.path + "/config.json"); !model.path.empty() && file)
    keys = json::parse(file, nullptr, false);
  if (!model.config_json.empty() && keys.is_object()) keys.update(json::parse(model.config_json));
  return keys;
}

LayerWork layer_work_in(const json& keys, int layers, const std::string& family) {
  const json type = keys.is_object() ? keys.value("model_type", json()) : json();
  const std::string name = family.empty() && type.is_string() ? type.get<std::string>() : family;
  if (name == "bert") return bert_work(keys, layers);
  const auto& known = decoder_families();
  const bool described =
      std::any_of(known.begin(), known.end(), [&](const DecoderFamily& one) { return one.model_type == name; });
  if (!described) return {std::vector<double>(layers, 1.0)};
  return layer_work_of(decoder_spec(name, keys));
}

}  // namespace gantry::models
