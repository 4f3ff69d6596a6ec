#include "gantry/core/layer_work.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// The first of the keys that is a positive number; else `otherwise`.
double size_in(const nlohmann::json& keys, std::initializer_list<const char*> names, double otherwise) {
  for (const char* name : names)
    if (const auto found = keys.find(name); found != keys.end() && found->is_number() && found->get<double>() > 0)
      return found->get<double>();
  return otherwise;
}

bool says(const nlohmann::json& keys, const char* name, const std::string& value) {
  const auto found = keys.find(name);
  if (found == keys.end()) return false;
  const nlohmann::json& text = found->is_array() && !found->empty() ? found->front() : *found;
  return text.is_string() && text.get<std::string>() == value;
}

// The head's matrices: the vocabulary's, but for BERT by its head, whose own default is the masked language model's.
double head_weights(const nlohmann::json& keys, double hidden) {
  const double vocabulary = hidden * size_in(keys, {"vocab_size"}, 0);
  if (!keys.contains("type_vocab_size") && !says(keys, "model_type", "bert")) return vocabulary;
  if (says(keys, "architectures", "BertForQuestionAnswering")) return 2 * hidden;
  const bool masked = !keys.contains("architectures") || says(keys, "architectures", "BertForMaskedLM");
  return masked ? vocabulary + hidden * hidden : 0;
}

int least_layers(const LayerWork& work, std::size_t stage, std::size_t stages) {
  return stage + 1 == stages && stages > 1 && work.last > 0 ? 0 : 1;
}

void require_layers(const LayerWork& work, std::size_t stages) {
  if (stages < 1) throw ConfigError({"schedule.layers", "0 stages", "at least 1", ""});
  int needed = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) needed += least_layers(work, stage, stages);
  const int layers = static_cast<int>(work.layers.size());
  if (needed > layers)
    throw ConfigError({"schedule.layers",
                       fmt::format("{} layers over {} stages leaves {} stages empty", layers, stages, needed - layers),
                       "at least one layer a stage",
                       fmt::format("use at most {} stages, or state empty stages by a list", layers)});
}

double extra_work(const LayerWork& work, std::size_t stage, std::size_t stages) {
  return (stage == 0 ? work.first : 0) + (stage + 1 == stages ? work.last : 0);
}

// Of equal layers each goes to the rank with the least work, and there to the stage with the least: no way is better,
// since a layer may stand on any stage. Ties go to the later one, which holds fewer activations.
std::vector<int> distribute_equal(const LayerWork& work, const std::vector<int>& rank_of_stage) {
  const std::size_t stages = rank_of_stage.size();
  std::vector<int> counts;
  for (std::size_t stage = 0; stage < stages; ++stage) counts.push_back(least_layers(work, stage, stages));
  std::vector<double> on_stage(stages);
  const double layer = work.layers.front();
  std::vector<double> on_rank(std::ranges::max(rank_of_stage) + 1, 0);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    on_stage[stage] = extra_work(work, stage, stages) + layer * counts[stage];
    on_rank[rank_of_stage[stage]] += on_stage[stage];
  }
  const int placed = std::accumulate(counts.begin(), counts.end(), 0);
  for (int left = static_cast<int>(work.layers.size()) - placed; left > 0; --left) {
    std::size_t best = stages - 1;
    for (std::size_t stage = stages; stage-- > 0;) {
      const auto figures = [&](std::size_t s) { return std::pair(on_rank[rank_of_stage[s]], on_stage[s]); };
      if (figures(stage) < figures(best)) best = stage;
    }
    ++counts[best];
    on_stage[best] += layer;
    on_rank[rank_of_stage[best]] += layer;
  }
  return counts;
}

// The way into contiguous stages whose heaviest is lightest: best[s][n] is that of the first n layers on s stages.
std::vector<int> distribute_stages(const LayerWork& work, std::size_t stages) {
  const std::size_t layers = work.layers.size();
  std::vector<double> before(layers + 1, 0);
  std::partial_sum(work.layers.begin(), work.layers.end(), before.begin() + 1);
  std::vector<std::vector<double>> best(stages + 1,
                                        std::vector<double>(layers + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<std::size_t>> begin(stages + 1, std::vector<std::size_t>(layers + 1, 0));
  best[0][0] = 0;
  for (std::size_t stage = 0; stage < stages; ++stage)
    for (std::size_t end = 0; end <= layers; ++end)
      for (std::size_t from = 0; from + least_layers(work, stage, stages) <= end; ++from) {
        const double here = before[end] - before[from] + extra_work(work, stage, stages);
        const double heaviest = std::max(best[stage][from], here);
        if (heaviest < best[stage + 1][end]) best[stage + 1][end] = heaviest, begin[stage + 1][end] = from;
      }
  std::vector<int> counts(stages);
  for (std::size_t stage = stages, end = layers; stage-- > 0;) {
    counts[stage] = static_cast<int>(end - begin[stage + 1][end]);
    end = begin[stage + 1][end];
  }
  return counts;
}

// Moves single layers over borders of stages while that makes the heaviest rank lighter.
void improve_ranks(const LayerWork& work, const std::vector<int>& rank_of_stage, std::vector<int>& counts) {
  const std::size_t stages = counts.size();
  auto heaviest = [&](const std::vector<int>& tried) {
    return std::ranges::max(work_of_ranks(work_of_stages(work, tried), rank_of_stage));
  };
  double current = heaviest(counts);
  for (bool helped = true; helped;) {
    helped = false;
    for (std::size_t from = 0; from < stages; ++from)
      for (std::size_t to = 0; to < stages; ++to) {
        if (from == to || counts[from] <= least_layers(work, from, stages)) continue;
        std::vector<int> tried = counts;
        --tried[from];
        ++tried[to];
        if (const double found = heaviest(tried); found < current) current = found, counts = tried, helped = true;
      }
  }
}

}  // namespace

LayerWork layer_work_in(const nlohmann::json& model_keys, int layers) {
  LayerWork work{std::vector<double>(layers, 1.0)};
  if (!model_keys.is_object()) return work;
  const double hidden = size_in(model_keys, {"n_embd", "hidden_size"}, 0);
  if (hidden == 0) return work;
  const double heads = size_in(model_keys, {"n_head", "num_attention_heads"}, 1);
  const double key_heads = size_in(model_keys, {"num_key_value_heads"}, heads);
  const double head_size = size_in(model_keys, {"head_dim"}, hidden / heads);
  const double inner = size_in(model_keys, {"n_inner", "intermediate_size"}, 4 * hidden);
  const bool gated = model_keys.contains("rms_norm_eps");  // Llama's family has a third matrix there
  const double layer = hidden * head_size * (2 * heads + 2 * key_heads) + (gated ? 3 : 2) * hidden * inner;
  work.layers.assign(layers, layer);
  work.last = head_weights(model_keys, hidden);
  return work;
}

std::vector<double> work_of_stages(const LayerWork& work, const std::vector<int>& layers_of_stage) {
  std::vector<double> on_stage;
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < layers_of_stage.size(); ++stage) {
    double sum = extra_work(work, stage, layers_of_stage.size());
    for (int i = 0; i < layers_of_stage[stage]; ++i) sum += work.layers.at(layer++);
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

std::vector<int> distribute_by_work(const LayerWork& work, const std::vector<int>& rank_of_stage) {
  const std::size_t stages = rank_of_stage.size();
  require_layers(work, stages);
  const bool equal = std::ranges::adjacent_find(work.layers, std::not_equal_to<>()) == work.layers.end();
  if (equal) return distribute_equal(work, rank_of_stage);
  std::vector<int> counts = distribute_stages(work, stages);
  improve_ranks(work, rank_of_stage, counts);
  return counts;
}

}  // namespace gantry
