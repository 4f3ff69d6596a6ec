#include "gantry/models/lora.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <regex>
#include <set>

#include <torch/torch.h>

#include "gantry/core/adapter_split.h"
#include "gantry/core/error.h"
#include "gantry/nn/linear.h"

namespace gantry::models {
namespace {

constexpr const char* kPrefix = "base_model.model.";  // of PEFT's names

template <class Number>
const Number* find_pattern(const char* key, const std::map<std::string, Number>& patterns, const std::string& path) {
  const std::pair<const std::string, Number>* found = nullptr;
  for (const auto& each : patterns) {
    try {
      if (!std::regex_match(path, std::regex("(.*\\.)?(" + each.first + ")"))) continue;
    } catch (const std::regex_error&) {
      throw ConfigError({key, "'" + each.first + "' is no regular expression", "the end of a layer's path", ""});
    }
    if (found)
      throw ConfigError({key, fmt::format("'{}' and '{}' both match {}", found->first, each.first, path),
                         "one pattern for a layer", "make them narrower"});
    found = &each;
  }
  return found ? &found->second : nullptr;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// A module of the model, with its names here and in Hugging Face's files.
struct FoundModule {
  std::string name;
  ModulePath path;
  std::shared_ptr<torch::nn::Module> module;

  nn::LinearImpl* linear() const { return dynamic_cast<nn::LinearImpl*>(module.get()); }
  bool is_named(const std::string& entry) const { return names_module(entry, path.path) || names_module(entry, name); }
};

// The chosen layers and modules, and what of the model must not be trained with them.
class Choice {
 public:
  Choice(torch::nn::Module& model, const std::vector<TensorName>& names) : model_(model) {
    for (const auto& item : model.named_modules("", /*include_self=*/false))
      modules_.push_back({item.key(), hugging_face_path(item.key(), names), item.value()});
  }

  std::vector<const FoundModule*> layers(const LoraConfig& lora, const std::vector<std::string>& outputs) const {
    std::vector<const FoundModule*> chosen;
    const bool all = lora.target_modules == std::vector<std::string>{kAllLinear};
    for (const auto& entry : lora.target_modules)
      if (!all) require_linear(entry);
    for (const auto& each : modules_) {
      if (!each.linear()) continue;
      const bool is_output = std::find(outputs.begin(), outputs.end(), each.name) != outputs.end();
      if (all ? !is_output : is_named(each, lora.target_modules)) chosen.push_back(&each);
    }
    if (chosen.empty())
      throw ConfigError({"lora.target_modules", "the model has no gantry::nn::Linear to adapt", "a linear layer", ""});
    return chosen;
  }

  std::vector<const FoundModule*> saved(const std::vector<std::string>& entries) const {
    std::vector<const FoundModule*> chosen;
    for (const auto& entry : entries) {
      const auto before = chosen.size();
      for (const auto& each : modules_)
        if (each.is_named(entry) && !each.module->parameters().empty()) chosen.push_back(&each);
      if (chosen.size() == before) refuse("lora.modules_to_save", entry, "a module with parameters");
    }
    return chosen;
  }

  // A parameter with several names would be trained under all of them.
  void refuse_tied(const torch::Tensor& parameter, const char* key) const {
    std::vector<std::string> names;
    for (const auto& item : model_.named_parameters())
      if (item.value().is_same(parameter)) names.push_back(item.key());
    if (names.size() > 1)
      throw ConfigError({key, fmt::format("{} is the same parameter as {}", names[1], names[0]),
                         "modules that share nothing with others", "take it out, or untie them (tie_word_embeddings)"});
  }

 private:
  static bool is_named(const FoundModule& module, const std::vector<std::string>& entries) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const std::string& entry) { return module.is_named(entry); });
  }

  void require_linear(const std::string& entry) const {
    bool found = false;
    for (const auto& each : modules_) {
      if (!each.is_named(entry)) continue;
      found = true;
      if (!each.linear())
        throw ConfigError({"lora.target_modules",
                           fmt::format("'{}' names {}, which is no gantry::nn::Linear", entry, each.path.path),
                           "linear layers", "lora.modules_to_save trains other modules whole"});
    }
    if (!found) refuse("lora.target_modules", entry, "a linear layer");
  }

  [[noreturn]] void refuse(const char* key, const std::string& entry, const char* expected) const {
    std::set<std::string> known;
    for (const auto& each : modules_)
      if (std::string(key) == "lora.modules_to_save" || each.linear()) {
        known.insert(last_part(each.path.path));
        known.insert(each.path.path);
      }
    const std::string near = nearest_name(entry, known);
    std::set<std::string> lasts;
    for (const auto& name : known)
      if (name.find('.') == std::string::npos && name.find_first_not_of("0123456789") != std::string::npos)
        lasts.insert(name);
    throw ConfigError(
        {key, "'" + entry + "' matches no module of the model", expected,
         near.empty() ? fmt::format("it has {}", fmt::join(lasts, ", ")) : "did you mean '" + near + "'?"});
  }

  torch::nn::Module& model_;
  std::vector<FoundModule> modules_;
};

const TensorName* find_name(const std::vector<TensorName>& names, const std::string& name) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const TensorName& one) { return one.name == name; });
  return found == names.end() ? nullptr : &*found;
}

}  // namespace

bool names_module(const std::string& entry, const std::string& path) {
  return path == entry || path.ends_with("." + entry);
}

std::int64_t rank_of(const LoraConfig& lora, const std::string& path) {
  const int* own = find_pattern("lora.rank_pattern", lora.rank_pattern, path);
  return own ? *own : lora.r;
}

double scale_of(const LoraConfig& lora, const std::string& path) {
  const double* own = find_pattern("lora.alpha_pattern", lora.alpha_pattern, path);
  const auto rank = static_cast<double>(rank_of(lora, path));
  return (own ? *own : lora.alpha) / (lora.rslora ? std::sqrt(rank) : rank);
}

ModulePath hugging_face_path(const std::string& module, const std::vector<TensorName>& names) {
  const TensorName* weight = find_name(names, module + ".weight");
  if (!weight || weight->hugging_face.empty()) return {module};
  return {weight->hugging_face.substr(0, weight->hugging_face.rfind('.')), weight->transposed};
}

void add_adapters(torch::nn::Module& model, const LoraConfig& lora, const std::vector<TensorName>& names,
                  const std::vector<std::string>& outputs) {
  const Choice choice(model, names);
  const auto layers = choice.layers(lora, outputs), saved = choice.saved(lora.modules_to_save);
  for (const auto* each : saved)
    for (const auto& parameter : each->module->parameters()) choice.refuse_tied(parameter, "lora.modules_to_save");
  for (auto& parameter : model.parameters()) parameter.set_requires_grad(false);
  for (const auto* each : saved)
    for (auto& parameter : each->module->parameters()) parameter.set_requires_grad(true);
  for (const auto* layer : layers) {
    nn::LinearImpl& linear = *layer->linear();
    choice.refuse_tied(linear.weight, "lora.target_modules");
    if (linear.weight.requires_grad())
      throw ConfigError({"lora.target_modules", layer->path.path + " is among lora.modules_to_save too", "one of both",
                         "take one out"});
    linear.add_adapter(
        {.rank = rank_of(lora, layer->path.path), .scale = scale_of(lora, layer->path.path), .dropout = lora.dropout});
  }
}

std::vector<TensorName> trained_names(const std::vector<std::string>& parameters, const LoraConfig& lora,
                                      const std::vector<TensorName>& names) {
  std::vector<TensorName> trained;
  for (const auto& name : parameters) {
    if (is_adapter(name)) {
      const std::string path = hugging_face_path(adapted_layer(name), names).path;
      trained.push_back({name, kPrefix + path + name.substr(name.rfind('.')) + ".weight"});
      continue;
    }
    const TensorName* known = find_name(names, name);
    if (known && known->hugging_face.empty())
      throw ConfigError({"lora.modules_to_save", name + " is stored in parts, which an adapter's file has not",
                         "modules without stacked experts", ""});
    const std::string stored = known ? known->hugging_face : name;
    const std::string module = name.substr(0, name.rfind('.')), path = stored.substr(0, stored.rfind('.'));
    // A module to save may hold others: any path around the parameter's.
    const bool is_saved = std::any_of(lora.modules_to_save.begin(), lora.modules_to_save.end(), [&](const auto& entry) {
      for (const std::string& whole : {module, path})
        for (std::size_t end = whole.size(); end != std::string::npos && end > 0; end = whole.rfind('.', end - 1))
          if (names_module(entry, whole.substr(0, end))) return true;
      return false;
    });
    if (is_saved) trained.push_back({name, kPrefix + stored, known && known->transposed});
  }
  return trained;
}

}  // namespace gantry::models
