#include "gantry/booster/recipe.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>

#include "gantry/booster/class_names.h"
#include "gantry/booster/hidden_states.h"
#include "gantry/booster/image_encoder.h"
#include "gantry/booster/lora.h"
#include "gantry/booster/lora_names.h"
#include "gantry/booster/mtp_rules.h"
#include "gantry/booster/plugin_library.h"
#include "gantry/booster/run_task.h"
#include "gantry/checkpoint/adapter_starts.h"
#include "gantry/checkpoint/format/adapter_config.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/stored_names.h"
#include "gantry/checkpoint/tied_tensors.h"
#include "gantry/core/base/warning.h"
#include "gantry/core/host/first_process.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/models/decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/lora_names.h"
#include "gantry/models/described/rank_limits.h"
#include "gantry/models/described/sentence_modules.h"
#include "gantry/models/model_family.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::string require_family(const nlohmann::json& config, const std::string& directory) {
  if (const std::string name = models::family_of(config); !name.empty()) return name;
  const nlohmann::json type = config.value("model_type", nlohmann::json(""));
  models::refuse_model_type(directory + "/config.json", type.is_string() ? type.get<std::string>() : type.dump(),
                            models::families().names());
}

void add_noise(torch::nn::Module& model, const Config& config) {
  config.mark_used("train.neftune_alpha");
  if (config.train.neftune_alpha == 0) return;
  auto* decoder = dynamic_cast<models::DecoderImpl*>(&model);
  if (!decoder)
    throw ConfigError(
        {"train.neftune_alpha",
         fmt::format("the value is {}, but {} does not support it", config.train.neftune_alpha, config.model.policy),
         "a decoder of one of Gantry's families", "remove the key"});
  decoder->add_embedding_noise(config.train.neftune_alpha);
}

// Without this check, a second name of a parameter would be found only by the export of the first checkpoint.
void refuse_tied_names(const models::ModelFamily& family, const nlohmann::json& keys, const torch::nn::Module& model,
                       const std::string& name) {
  std::map<std::string, const void*> parameters;
  for (const auto& item : model.named_parameters()) parameters[item.key()] = item.value().unsafeGetTensorImpl();
  std::map<const void*, std::string> listed;
  for (const auto& each : family.tensor_names(keys)) {
    const auto found = parameters.find(each.name);
    if (found == parameters.end()) continue;
    const auto [first, is_new] = listed.emplace(found->second, each.name);
    if (!is_new)
      throw ConfigError(
          {"model family '" + name + "'",
           fmt::format("tensor_names() lists a tied parameter twice, as '{}' and '{}'", first->second, each.name),
           "each parameter once",
           "return models::names_of_parameters(model), or list '" + each.name + "' among TensorName::copies"});
  }
}

}  // namespace

void load_libraries(const Config& config) {
  for (const auto& path : config.libraries) load_plugin_library(path.c_str());
}

Config resolve_model(Config config) {
  nlohmann::json file = nlohmann::json::object();
  if (!config.model.path.empty()) {
    nlohmann::json keys = read_model_config(config.model.path);
    models::add_sentence_modules(keys, config.model.path);
    if (config.model.policy.empty()) config.model.policy = require_family(keys, config.model.path);
    file = keys;
    drop_replaced_labels(keys, model_json(config));
    models::override_keys(keys, model_json(config));
    config.model.config_json = keys.dump();
  }
  config.require_model();
  config.lora = resolve_lora(std::move(config.lora));
  policies().at(config.model.policy);
  const auto* family = family_or_null(config);
  if (family) {
    if (models::reads_images(*family) && has_images_for_text(config)) config = with_image_encoder(std::move(config));
    refuse_with_image_encoder(config);
    const std::string path = config.model.path + "/config.json";
    nlohmann::json keys = model_json(config);
    const std::string warning = models::check_model_keys(*family, keys, config.model.unknown_keys, file, path);
    if (!warning.empty() && is_first_process()) print_warning(warning);
    config.lora = lora_of_family(config, std::move(config.lora));
    refuse_with_mtp(config);
    if (!config.model.path.empty()) {
      keys.update(compare_tied_tensors(config.model.path, *family, keys).keys);
      config.model.config_json = keys.dump();
    }
  }
  name_classes(config);
  return config;
}

std::shared_ptr<torch::nn::Module> build_model(const Config& config) {
  config.mark_used("model.config");
  const auto& family = models::families().at(config.model.policy);
  nlohmann::json keys = model_json(config);
  models::require_ranks(keys, config.model.policy, config.parallel);
  if (config.experts.balance == "transformers")
    keys.update({{"output_router_logits", true}, {"router_aux_loss_coef", config.experts.aux_loss}});
  const DeferredInit deferred;
  auto model = family.build(keys);
  refuse_tied_names(family, keys, *model, config.model.policy);
  add_noise(*model, config);
  set_dtype(*model, dtype_of(config.precision));
  add_lora(*model, config);
  freeze_parameters(*model, config);
  quantize_base(*model, config);
  add_hidden_states(*model, config);
  return model;
}

LrSchedule build_lr_schedule(const Config& config) {
  config.mark_used("lr_schedule");
  return LrSchedule(config.lr_schedule, config.optimizer.lr, config.train.steps);
}

namespace {

// Removes adapters, because the files of the base do not contain them.
std::vector<HeldTensor> without_adapters(std::vector<HeldTensor> held) {
  std::erase_if(held, [](const HeldTensor& one) { return is_adapter(one.placement.name); });
  return held;
}

// Warns about differences between the model and config.json, and about tensors of the files that are not
// used.
void say_how_files_were_read(const Config& config, const LoadedModel& found) {
  const auto& family = models::families().at(config.model.policy);
  const auto ties = compare_tied_tensors(config.model.path, family, read_model_config(config.model.path));
  for (const auto& note : ties.notes) print_warning(note);
  if (!family.other_parts.empty() && !has_image_encoder(model_json(config)))
    print_warning(fmt::format("{}: only the text decoder of the model is loaded, without {}", config.model.path,
                              fmt::join(family.other_parts, " and ")));
  const std::string task = task_of(config);
  if (models::has_key(model_json(config), models::kSentenceModules) && task != "none" && task != "contrast")
    print_warning(fmt::format("{}: the sentence embedding of modules.json is not computed for {}", config.model.path,
                              family.model_type));
  if (!found.passed_over.empty())
    print_warning(fmt::format("{}: tensors that this model does not read: {}", config.model.path,
                              summary_of_names(found.passed_over)));
}

void load_configured_adapter(const Config& config, const StageModule& module, const ProcessGroupMesh& mesh,
                             const std::function<void(std::uint64_t)>& loaded) {
  std::vector<std::string> names;
  for (const auto& placement : module.all_placements) names.push_back(placement.name);
  load_adapter_of(config, config.lora, names, module.parameters, mesh.coordinates(), loaded);
}

// Adapters that start from the weights of the base need a base with values.
void require_starts(torch::nn::Module& model, const LoraConfig& lora) {
  for (const auto& item : model.named_modules()) {
    const auto* layer = dynamic_cast<const nn::LinearImpl*>(item.value().get());
    const auto* table = dynamic_cast<const nn::EmbeddingImpl*>(item.value().get());
    const bool is_table = table && table->awaits_tokens();
    if (is_table || (layer && layer->awaits_base()))
      throw ConfigError({is_table        ? "lora.trainable_token_indices"
                         : lora.use_dora ? "lora.use_dora"
                                         : "lora.init_lora_weights",
                         item.key() + " has only initial weights, because model.path is not set",
                         "the weights of a trained base model", "set model.path to the base model"});
  }
}

}  // namespace

std::vector<std::string> load_weights(const Config& config, Boosted& boosted, const ProcessGroupMesh& mesh,
                                      const std::function<void(std::uint64_t)>& loaded) {
  config.mark_used("model.path");
  if (config.model.path.empty() && config.lora.path.empty()) {
    if (models::starts_from_base(config.lora)) require_starts(boosted.model->module(), config.lora);
    return {};
  }
  DiskProgress progress;
  LoadedModel found;
  work_on_disk(mesh.world_group(), disk_limits(config.comm.timeout_seconds), progress, [&] {
    const StageModule& module = boosted.model->stage_module();
    const auto read = [&](std::uint64_t bytes) {
      progress.add(bytes + 1);
      if (loaded) loaded(bytes);
    };
    if (!config.model.path.empty())
      found = load_hugging_face(config.model.path, models::families().at(config.model.policy), model_json(config),
                                without_adapters(module.parameters), mesh.coordinates(), read,
                                weight_code(config.model.quantize, config.model.quantize_double));
    if (!config.lora.path.empty())
      load_configured_adapter(config, module, mesh, read);
    else if (models::starts_from_base(config.lora))
      load_adapter_starts(config.model.path, models::families().at(config.model.policy), model_json(config),
                          config.lora, module.parameters, mesh.coordinates(), read,
                          weight_code(config.model.quantize, config.model.quantize_double));
  });
  if (mesh.rank() == 0 && !config.model.path.empty()) say_how_files_were_read(config, found);
  return std::move(found.fresh);
}

}  // namespace gantry
