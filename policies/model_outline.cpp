#include "gantry/policies/model_outline.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <variant>

#include "gantry/core/base/wildcard.h"
#include "gantry/models/decoder.h"
#include "gantry/models/described/outlined_layer.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/router.h"
#include "gantry/policies/model_map.h"

namespace gantry {
namespace {

using models::DecoderSpec;
using models::OutlinedSizes;

bool is_in(const std::string& path, const std::vector<std::string>& held) {
  return std::ranges::any_of(held, [&](const std::string& each) { return is_within(path, each); });
}

bool shards_parameters(const ShardStyle& style) {
  return std::holds_alternative<Column>(style) || std::holds_alternative<Row>(style) ||
         std::holds_alternative<Vocab>(style);
}

// The model in the planner's description; absent, with the reason, if the planner cannot describe it.
class OutlinedDecoder {
 public:
  OutlinedDecoder(torch::nn::Module& model, const Policy& policy, const ModelSplit& split)
      : map_(model), lists_(layer_lists(policy, model)), split_(split) {
    spec_.family = policy.name();
    spec_.unlimited_positions = true;
  }

  // Empty, or the reason why there is no spec.
  std::string describe() {
    if (lists_.size() != 1) return fmt::format("it has {} lists of layers", lists_.size());
    for (const auto& [path, module] : map_.modules)
      if (module->as<nn::RouterImpl>()) return "it has experts (" + path + ")";
    spec_.names.layers = lists_.front().path;
    if (const auto reason = describe_table(); !reason.empty()) return reason;
    if (const auto reason = describe_head(); !reason.empty()) return reason;
    describe_norm();
    for (std::size_t index = 0; index < lists_.front().layers.size(); ++index) add_layer(index);
    return "";
  }
  DecoderSpec take() { return std::move(spec_); }

 private:
  // Null if the model has no such parameter.
  const NamedTensor* parameter_at(const std::string& name) const {
    const auto found = std::ranges::find_if(
        map_.parameters, [&](const NamedTensor& each) { return std::ranges::count(each.names, name) > 0; });
    return found == map_.parameters.end() ? nullptr : &*found;
  }

  // The first embedding is for the tokens, a second one for the positions.
  std::string describe_table() {
    int tables = 0;
    for (const auto& [path, module] : map_.modules) {
      if (!is_in(path, split_.stages.first)) continue;
      if (!module->as<nn::EmbeddingImpl>() && !module->as<torch::nn::EmbeddingImpl>()) continue;
      const torch::Tensor weight = parameter_at(path + ".weight")->tensor;
      if (++tables == 1) {
        spec_.names.tokens = path;
        spec_.vocabulary = weight.size(0);
        spec_.hidden = weight.size(1);
      } else if (tables == 2 && weight.size(1) == spec_.hidden) {
        spec_.names.positions = path;
        spec_.learned_positions = true;
        spec_.positions = weight.size(0);
      }
    }
    return tables == 0 ? "its first stage has no embedding" : "";
  }

  std::string describe_head() {
    std::string path;
    for (const auto& [each, module] : map_.modules)
      if (const NamedTensor* weight = parameter_at(each + ".weight");
          weight && is_in(each, split_.stages.last) && weight->tensor.dim() == 2)
        path = each;
    if (!split_.split_outputs.empty()) path = split_.split_outputs.front().module;
    const NamedTensor* weight = path.empty() ? nullptr : parameter_at(path + ".weight");
    if (!weight) return "its last stage has no output layer";
    if (weight->tensor.dim() != 2 || weight->tensor.size(0) != spec_.vocabulary ||
        weight->tensor.size(1) != spec_.hidden)
      return fmt::format("its output layer has the shape [{}], and its embedding [{}, {}]",
                         fmt::join(weight->tensor.sizes().vec(), ", "), spec_.vocabulary, spec_.hidden);
    spec_.names.head = path;
    spec_.tied = std::ranges::count(weight->names, spec_.names.tokens + ".weight") > 0;
    spec_.head_bias = parameter_at(path + ".bias") != nullptr;
    return "";
  }

  void describe_norm() {
    for (const auto& [path, module] : map_.modules) {
      const NamedTensor* weight = is_in(path, split_.stages.last) ? parameter_at(path + ".weight") : nullptr;
      if (!weight || weight->tensor.dim() != 1 || weight->tensor.size(0) != spec_.hidden) continue;
      spec_.names.norm = path;
      spec_.norm.kind = parameter_at(path + ".bias") ? models::NormSpec::Kind::kLayer : models::NormSpec::Kind::kRms;
    }
  }

  void add_layer(std::size_t index) {
    const std::string path = fmt::format("{}.{}", lists_.front().path, index);
    OutlinedSizes sizes{.first = path,
                        .parameters = {},
                        .shards = {},
                        .shares_sequences = split_.context.has_value(),
                        .shards_sequences = std::ranges::any_of(split_.shards, [](const ShardRule& rule) {
                          return std::holds_alternative<SequenceParallel>(rule.style);
                        })};
    for (const auto& [each, module] : map_.modules) {
      if (!is_within(each, path) || each == path) continue;
      const auto rule = std::ranges::find_if(split_.shards, [&, at = each](const ShardRule& one) {
        return shards_parameters(one.style) && matches_pattern(one.pattern, at, Star::kOnePart);
      });
      if (rule != split_.shards.end()) sizes.shards.push_back({each.substr(path.size() + 1), rule->style});
    }
    for (const NamedTensor& parameter : map_.parameters) {
      const std::string& name = parameter.names.front();
      if (!is_within(name, path)) continue;
      sizes.parameters.push_back({name.substr(path.size() + 1), parameter.tensor.sizes().vec()});
    }
    if (!spec_.layers.empty())
      if (const auto* before = dynamic_cast<const models::OutlinedLayer*>(&*spec_.layers.back().mixer);
          before && before->sizes == sizes) {
        spec_.layers.push_back(spec_.layers.back());
        return;
      }
    models::LayerSpec layer;
    layer.mixer = std::make_shared<const models::OutlinedLayer>(std::move(sizes));
    layer.has_mlp = false;
    spec_.layers.push_back(std::move(layer));
  }

  ModelMap map_;
  std::vector<LayerList> lists_;
  const ModelSplit& split_;
  DecoderSpec spec_;
};

}  // namespace

models::ModelOutline outline_of(torch::nn::Module& model, const Policy& policy) {
  policy.validate(model);
  policy.preprocess(model);
  const ModelSplit split = policy.split(model);
  models::ModelOutline outline{.work = work_of(split, model), .spec = {}};
  if (const auto* decoder = dynamic_cast<const models::DecoderImpl*>(&model)) {
    outline.spec = decoder->spec;
    return outline;
  }
  OutlinedDecoder described(model, policy, split);
  outline.without_spec = described.describe();
  if (outline.without_spec.empty()) outline.spec = described.take();
  return outline;
}

}  // namespace gantry
