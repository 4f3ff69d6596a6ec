#include "gantry/core/layer_work.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

namespace gantry {
namespace {

// What a family's config.json leaves unsaid.
struct FamilySizes {
  double hidden = 0, heads = 1, inner = 0, vocabulary = 0;  // inner 0: four times hidden
  bool gated = false;                                       // a third matrix in the feed-forward
  bool is_bert = false;                                     // whose head depends on `architectures`
};

const std::map<std::string, FamilySizes, std::less<>>& families_sizes() {
  static const std::map<std::string, FamilySizes, std::less<>> sizes = {
      {"gpt2", {.hidden = 768, .heads = 12, .vocabulary = 50257}},
      {"llama", {.hidden = 4096, .heads = 32, .inner = 11008, .vocabulary = 32000, .gated = true}},
      {"bert", {.hidden = 768, .heads = 12, .inner = 3072, .vocabulary = 30522, .is_bert = true}}};
  return sizes;
}

// The first of the keys that is a positive number; else `otherwise`.
double size_in(const nlohmann::json& keys, std::initializer_list<const char*> names, double otherwise) {
  for (const char* name : names)
    if (const auto found = keys.find(name); found != keys.end() && found->is_number() && found->get<double>() > 0)
      return found->get<double>();
  return otherwise;
}

std::string text_in(const nlohmann::json& keys, const char* name) {
  const auto found = keys.find(name);
  if (found == keys.end()) return "";
  const nlohmann::json& text = found->is_array() && !found->empty() ? found->front() : *found;
  return text.is_string() ? text.get<std::string>() : "";
}

// By the family's name, else by keys that only one of them has.
FamilySizes family_in(const nlohmann::json& keys, const std::string& family) {
  const auto& all = families_sizes();
  for (const std::string& name : {family, text_in(keys, "model_type")})
    if (const auto found = all.find(name); found != all.end()) return found->second;
  return {.gated = keys.contains("rms_norm_eps"), .is_bert = keys.contains("type_vocab_size")};
}

// The head's matrices: the vocabulary's, but for BERT by its head, whose own default is the masked language model's.
// Those that look at the first token alone are no work.
double head_weights(const nlohmann::json& keys, const FamilySizes& family, double hidden) {
  const double vocabulary = hidden * size_in(keys, {"vocab_size"}, family.vocabulary);
  if (!family.is_bert) return vocabulary;
  const std::string architecture = text_in(keys, "architectures");
  if (architecture == "BertForQuestionAnswering") return 2 * hidden;
  const bool masked = !keys.contains("architectures") || architecture == "BertForMaskedLM";
  return masked ? vocabulary + hidden * hidden : 0;
}

}  // namespace

LayerWork layer_work_in(const nlohmann::json& model_keys, int layers, const std::string& family) {
  LayerWork work{std::vector<double>(layers, 1.0)};
  if (!model_keys.is_object()) return work;
  const FamilySizes sizes = family_in(model_keys, family);
  const double hidden = size_in(model_keys, {"n_embd", "hidden_size"}, sizes.hidden);
  if (hidden == 0) return work;
  const double heads = size_in(model_keys, {"n_head", "num_attention_heads"}, sizes.heads);
  const double key_heads = size_in(model_keys, {"num_key_value_heads"}, heads);
  const double head_size = size_in(model_keys, {"head_dim"}, hidden / heads);
  const double inner =
      size_in(model_keys, {"n_inner", "intermediate_size"}, sizes.inner > 0 ? sizes.inner : 4 * hidden);
  const double layer = hidden * head_size * (2 * heads + 2 * key_heads) + (sizes.gated ? 3 : 2) * hidden * inner;
  work.layers.assign(layers, layer);
  work.last = head_weights(model_keys, sizes, hidden);
  return work;
}

std::vector<double> work_of_stages(const LayerWork& work, const std::vector<int>& layers_of_stage) {
  std::vector<double> on_stage;
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < layers_of_stage.size(); ++stage) {
    double sum = stage == 0 ? work.first : 0;
    for (int i = 0; i < layers_of_stage[stage]; ++i) sum += work.layers.at(layer++);
    if (stage + 1 == layers_of_stage.size()) sum += work.last;
    on_stage.push_back(sum);
  }
  return on_stage;
}

std::vector<double> work_of_ranks(const std::vector<double>& on_stage, const std::vector<int>& rank_of_stage) {
  std::vector<double> on_rank(std::ranges::max(rank_of_stage) + 1, 0);
  for (std::size_t stage = 0; stage < on_stage.size(); ++stage) on_rank[rank_of_stage[stage]] += on_stage[stage];
  return on_rank;
}

double evenness(const std::vector<double>& on_rank) {
  const double largest = std::ranges::max(on_rank);
  if (!(largest > 0)) return 1;
  return std::accumulate(on_rank.begin(), on_rank.end(), 0.0) / static_cast<double>(on_rank.size()) / largest;
}

}  // namespace gantry
