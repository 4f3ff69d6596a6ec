#include "gantry/models/lora.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

#include "gantry/core/config/adapter_names.h"
#include "gantry/core/error.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/models/peft_names.h"
#include "gantry/models/trained_tokens.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/experts.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

constexpr const char* kLabelHeads[] = {"classifier", "score", "qa_outputs"};  // by PEFT's names

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// A module of the model, with its names here and in Hugging Face's files.
struct FoundModule {
  std::string name;
  ModulePath path;
  std::shared_ptr<torch::nn::Module> module;
  bool is_of_other_part = false;  // part of an image encoder

  template <class Module>
  Module* as() const {
    return dynamic_cast<Module*>(module.get());
  }
  bool is_adaptable() const {
    return !is_of_other_part && (as<nn::LinearImpl>() || as<nn::EmbeddingImpl>() || as<nn::RouterImpl>());
  }
  bool is_named(const std::string& entry) const { return names_module(entry, path.path) || names_module(entry, name); }
  bool is_within(const std::string& entry) const { return names_around(entry, path.path) || names_around(entry, name); }
  bool is_parameter_named(const std::string& entry, const std::string& parameter) const {
    return names_module(entry, path.path + "." + parameter) || names_module(entry, name + "." + parameter);
  }
};

// A part of the model that gets one adapter.
struct AdaptedPart {
  const FoundModule* module;
  std::string stack;  // the name of a stack of experts; empty: the module

  std::string path() const { return module->path.path + (stack.empty() ? "" : "." + stack); }
  torch::Tensor weight() const {
    if (const auto* experts = module->as<nn::ExpertsImpl>())
      return stack == kDownStack ? experts->down_proj : experts->gate_up_proj;
    return module->module->named_parameters(/*recurse=*/false)["weight"];
  }
};

// Chooses the layers and modules, and rejects parameters that must not be trained with them.
class Choice {
 public:
  Choice(torch::nn::Module& model, const std::vector<TensorName>& names, const std::vector<std::string>& other_parts)
      : model_(model) {
    for (const auto& item : model.named_modules("", /*include_self=*/false))
      modules_.push_back({item.key(), hugging_face_path(item.key(), names), item.value(),
                          is_of_other_part(other_parts, item.key() + ".")});
  }

  std::vector<AdaptedPart> parts(const LoraConfig& lora, const std::vector<std::string>& outputs) const {
    std::vector<AdaptedPart> chosen;
    if (lora.target_modules == std::vector<std::string>{kAllLinear}) {
      for (const auto& each : modules_)
        if (each.as<nn::LinearImpl>() && each.is_adaptable() &&
            std::find(outputs.begin(), outputs.end(), each.name) == outputs.end() && !is_saved(each, lora))
          chosen.push_back({&each, ""});
    } else {
      for (const auto& entry : lora.target_modules) require_adaptable(entry);
      for (const auto& each : modules_) add_named(each, lora.target_modules, chosen);
      leave_out_saved(chosen, lora);
    }
    if (chosen.empty())
      throw ConfigError({"lora.target_modules", "the model has no gantry::nn::Linear that could get an adapter",
                         "a linear layer", ""});
    return chosen;
  }

  std::vector<const FoundModule*> saved(const std::vector<std::string>& entries) const {
    std::vector<const FoundModule*> chosen;
    for (const auto& entry : entries) {
      const auto before = chosen.size();
      for (const auto& each : modules_)
        if (each.is_within(entry) && !each.module->parameters().empty()) chosen.push_back(&each);
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
                         "modules that share no parameters with others",
                         "remove the entry, or untie the parameters (tie_word_embeddings)"});
  }

 private:
  static bool is_saved(const FoundModule& module, const LoraConfig& lora) {
    return std::ranges::any_of(lora.modules_to_save, [&](const auto& entry) { return module.is_within(entry); });
  }

  // If an entry names layers inside and outside of the modules to save, only those outside get adapters.
  static void leave_out_saved(std::vector<AdaptedPart>& chosen, const LoraConfig& lora) {
    const auto names_outside = [&](const std::string& entry) {
      return std::ranges::any_of(chosen, [&](const AdaptedPart& part) {
        return part.module->is_named(entry) && !is_saved(*part.module, lora);
      });
    };
    std::set<std::string> outside;
    for (const auto& entry : lora.target_modules)
      if (names_outside(entry)) outside.insert(entry);
    std::erase_if(chosen, [&](const AdaptedPart& part) {
      const auto is_named = [&](const std::string& entry) { return part.module->is_named(entry); };
      return is_saved(*part.module, lora) && std::ranges::any_of(outside, is_named);
    });
  }

  // The weight of a router can be listed by the module or by itself, because it is a plain parameter in
  // transformers 5.
  static void add_named(const FoundModule& module, const std::vector<std::string>& entries,
                        std::vector<AdaptedPart>& chosen) {
    const auto any = [&](const auto& names) { return std::any_of(entries.begin(), entries.end(), names); };
    const bool is_router = module.as<nn::RouterImpl>();
    if (module.is_adaptable() && any([&](const std::string& entry) {
          return module.is_named(entry) || (is_router && module.is_parameter_named(entry, "weight"));
        }))
      chosen.push_back({&module, ""});
    const auto* experts = module.as<nn::ExpertsImpl>();
    if (!experts) return;
    for (const std::string& stack : experts->stacks())
      if (any([&](const std::string& entry) { return module.is_parameter_named(entry, stack); }))
        chosen.push_back({&module, stack});
  }

  void require_adaptable(const std::string& entry) const {
    for (const auto& each : modules_) {
      if (!each.is_named(entry) || each.is_adaptable() || each.is_of_other_part) continue;
      const auto* experts = each.as<nn::ExpertsImpl>();
      throw ConfigError({"lora.target_modules",
                         fmt::format("'{}' matches {}, which is not a gantry::nn::Linear", entry, each.path.path),
                         "linear layers, embeddings, routers, or stacked expert weights",
                         experts ? fmt::format("name {0}.{1} and {0}.{2}", last_part(each.path.path),
                                               experts->stacks()[0], experts->stacks()[1])
                                 : "use lora.modules_to_save to train other modules in full"});
    }
    std::vector<AdaptedPart> named;
    for (const auto& each : modules_) add_named(each, {entry}, named);
    if (named.empty()) refuse("lora.target_modules", entry, "a linear layer");
  }

  [[noreturn]] void refuse(const char* key, const std::string& entry, const char* expected) const {
    std::set<std::string> known;
    for (const auto& each : modules_) {
      const auto add = [&](const std::string& path) {
        known.insert(last_part(path));
        known.insert(path);
      };
      if (std::string(key) == "lora.modules_to_save" || each.is_adaptable()) add(each.path.path);
      if (const auto* experts = each.as<nn::ExpertsImpl>(); experts && std::string(key) == "lora.target_modules")
        for (const std::string& stack : experts->stacks()) add(each.path.path + "." + stack);
    }
    const std::string near = nearest_name(entry, known);
    std::set<std::string> lasts;
    for (const auto& name : known)
      if (name.find('.') == std::string::npos && name.find_first_not_of("0123456789") != std::string::npos)
        lasts.insert(name);
    throw ConfigError(
        {key, "'" + entry + "' matches no module of the model", expected,
         near.empty() ? fmt::format("choose one of {}", fmt::join(lasts, ", ")) : "did you mean '" + near + "'?"});
  }

  torch::nn::Module& model_;
  std::vector<FoundModule> modules_;
};

// Refuses what PEFT does not support for this kind of layer.
nn::AdapterOptions options_of(const AdaptedPart& part, const LoraConfig& lora) {
  const nn::AdapterOptions options{.rank = rank_of(lora, part.path()),
                                   .scale = scale_of(lora, part.path()),
                                   .dropout = lora.dropout,
                                   .dora = lora.use_dora,
                                   .gaussian = lora.init_lora_weights == kGaussian,
                                   .pissa = is_pissa(lora),
                                   .power_steps = power_steps(lora)};
  if (part.module->as<nn::LinearImpl>()) return options;
  if (lora.use_dora)
    throw ConfigError({"lora.use_dora", part.path() + " is not a linear layer", "linear layers in lora.target_modules",
                       "remove the entry from lora.target_modules, or set lora.use_dora to false"});
  if (is_pissa(lora) || lora.init_lora_weights == kLoftq)
    throw ConfigError(
        {"lora.init_lora_weights",
         fmt::format("the value is {}, but {} is not a linear layer", lora.init_lora_weights, part.path()),
         "linear layers in lora.target_modules",
         "remove the entry from lora.target_modules, or set lora.init_lora_weights to default"});
  if (!part.module->as<nn::EmbeddingImpl>() && lora.dropout > 0)
    throw ConfigError(
        {"lora.dropout",
         fmt::format(
             "the value is {}, but the adapter of {} cannot have dropout, because PEFT treats it as a parameter",
             lora.dropout, part.path()),
         "0", "remove lora.dropout, or adapt only linear layers and embeddings"});
  return options;
}

void refuse_adapted_tokens(const TokenLayers& tokens, const AdaptedLayers& adapted) {
  const auto is_table = [&](const AdaptedLayer& layer) { return layer.path == tokens.path; };
  const auto is_weight = [&](const torch::Tensor& parameter) { return parameter.is_same(tokens.table->weight); };
  const bool is_adapted = std::ranges::any_of(adapted.layers, is_table);
  if (is_adapted || std::ranges::any_of(adapted.saved, is_weight))
    throw ConfigError(
        {"lora.trainable_token_indices",
         fmt::format("{} is also in lora.{}", tokens.path, is_adapted ? "target_modules" : "modules_to_save"),
         "only one of the two", "remove one entry"});
}

void add_adapter(const AdaptedLayer& layer) {
  torch::nn::Module* module = layer.module.get();
  if (auto* linear = dynamic_cast<nn::LinearImpl*>(module)) return linear->add_adapter(layer.options);
  if (auto* table = dynamic_cast<nn::EmbeddingImpl*>(module)) return table->add_adapter(layer.options);
  if (auto* router = dynamic_cast<nn::RouterImpl*>(module)) return router->add_adapter(layer.options);
  dynamic_cast<nn::ExpertsImpl&>(*module).add_adapter(layer.stack, layer.options);
}

}  // namespace

AdaptedLayers adapted_layers(torch::nn::Module& model, const LoraConfig& lora, const std::vector<TensorName>& names,
                             const std::vector<std::string>& outputs, const std::vector<std::string>& other_parts) {
  const Choice choice(model, names, other_parts);
  const auto parts = choice.parts(lora, outputs);
  AdaptedLayers adapted;
  for (const auto* each : choice.saved(lora.modules_to_save))
    for (const auto& parameter : each->module->parameters()) {
      choice.refuse_tied(parameter, "lora.modules_to_save");
      adapted.saved.push_back(parameter);
    }
  for (const auto& part : parts) {
    // A tied table may have an adapter, because the output layer reads the base's table.
    if (!part.module->as<nn::EmbeddingImpl>()) choice.refuse_tied(part.weight(), "lora.target_modules");
    const bool is_saved =
        std::ranges::any_of(adapted.saved, [&](const torch::Tensor& each) { return each.is_same(part.weight()); });
    if (is_saved && !lora.path.empty()) continue;  // listed twice by PEFT: saved
    if (is_saved)
      throw ConfigError({"lora.target_modules", part.path() + " is also in lora.modules_to_save", "only one of the two",
                         "remove one entry"});
    adapted.layers.push_back({part.module->name, part.stack, part.module->module, options_of(part, lora)});
  }
  if (const auto& tokens = lora.trainable_token_indices; !tokens.empty())
    refuse_adapted_tokens(token_layers(model, tokens), adapted);
  return adapted;
}

void add_adapters(torch::nn::Module& model, const LoraConfig& lora, const std::vector<TensorName>& names,
                  const std::vector<std::string>& outputs, const std::vector<std::string>& other_parts) {
  AdaptedLayers adapted = adapted_layers(model, lora, names, outputs, other_parts);
  for (auto& parameter : model.parameters()) parameter.set_requires_grad(false);
  for (auto& parameter : adapted.saved) parameter.set_requires_grad(true);
  for (const auto& layer : adapted.layers) add_adapter(layer);
  if (!lora.trainable_token_indices.empty()) train_tokens(model, lora.trainable_token_indices);
}

bool is_label_head(const std::string& module) {
  return std::ranges::any_of(kLabelHeads,
                             [&](const std::string& head) { return module == head || module.starts_with(head + "."); });
}

LoraConfig with_trained_heads(LoraConfig lora, const std::vector<TensorName>& names) {
  auto& saved = lora.modules_to_save;
  for (const std::string head : kLabelHeads) {
    bool exists = false, is_adapted = false;
    for (const TensorName& name : names) {
      if (!name.hugging_face.starts_with(head + ".")) continue;
      exists = true;
      const std::string module = name.hugging_face.substr(0, name.hugging_face.rfind('.'));
      is_adapted = is_adapted || std::ranges::any_of(lora.target_modules, [&](const std::string& entry) {
                     return entry == module || entry == head;
                   });
    }
    if (!exists && !lora.path.empty())
      std::erase(saved, head);
    else if (exists && !is_adapted && lora.path.empty() && std::ranges::find(saved, head) == saved.end())
      saved.push_back(head);
  }
  return lora;
}

}  // namespace gantry::models
