#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "gantry/core/config.h"
#include "gantry/core/config/byte_size.h"
#include "gantry/core/config/config_keys.h"
#include "gantry/core/config/schedule_choice.h"
#include "gantry/core/config/yaml_json.h"
#include "gantry/core/io/yaml_document.h"

namespace gantry {
namespace {

// Quoted as in JSON, which YAML reads as the same string.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

std::string quoted(const std::vector<std::string>& texts) {
  std::vector<std::string> all;
  for (const auto& text : texts) all.push_back(quoted(text));
  return fmt::format("[{}]", fmt::join(all, ", "));
}

std::string groups_text(const std::vector<OptimizerGroupConfig>& groups) {
  std::vector<std::string> all;
  for (const auto& group : groups) {
    std::string text = "{match: " + quoted(group.match);
    if (group.lr) text += fmt::format(", lr: {}", *group.lr);
    if (group.weight_decay) text += fmt::format(", weight_decay: {}", *group.weight_decay);
    all.push_back(text + "}");
  }
  return fmt::format("[{}]", fmt::join(all, ", "));
}

std::string sources_text(const DataConfig& data) {
  std::vector<std::string> all;
  for (const auto& source : data.sources)
    all.push_back(fmt::format("{{path: {}, weight: {}}}", quoted(source.path), source.weight));
  return all.empty() ? "" : fmt::format("[{}]", fmt::join(all, ", "));
}

std::string prompts_text(const std::vector<EvaluationPrompt>& prompts) {
  std::vector<std::string> all;
  for (const auto& prompt : prompts) all.push_back(prompt.is_chat ? prompt.text : quoted(prompt.text));
  return all.empty() ? "" : fmt::format("[{}]", fmt::join(all, ", "));
}

std::string layers_text(const ScheduleConfig& schedule) {
  if (const auto* list = std::get_if<std::vector<int>>(&schedule.layers))
    return fmt::format("[{}]", fmt::join(*list, ", "));
  if (const auto run = measured_run(schedule)) return "{balanced: " + quoted(*run) + "}";
  return quoted(std::get<std::string>(schedule.layers));
}

std::string size_text(int value) { return value == 0 ? "auto" : std::to_string(value); }

// Returns "" if there is no value.
std::string text_of(const std::string& value) { return value.empty() ? "" : quoted(value); }
template <class Value>
std::string text_of(const std::optional<Value>& value) {
  return value ? fmt::format("{}", *value) : "";
}
std::string unless_one(int value) { return value == 1 ? "" : std::to_string(value); }
std::string unless_none(double value) { return value > 0 ? fmt::format("{}", value) : ""; }
std::string unless_zero(int value) { return value == 0 ? "" : std::to_string(value); }

using Values = std::map<std::string, std::string>;  // values in YAML by key; a key with an empty value is left out

template <class Number>
std::string map_text(const std::map<std::string, Number>& values) {
  std::vector<std::string> all;
  for (const auto& [name, value] : values) all.push_back(fmt::format("{}: {}", quoted(name), value));
  return all.empty() ? "" : fmt::format("{{{}}}", fmt::join(all, ", "));
}

Values lora_values(const LoraConfig& lora) {
  if (!lora.is_on()) return {};
  const bool all = lora.target_modules == std::vector<std::string>{"all-linear"};
  return {
      {"lora.r", unless_zero(lora.r)},
      {"lora.alpha", lora.alpha > 0 ? fmt::format("{}", lora.alpha) : ""},
      {"lora.dropout", fmt::format("{}", lora.dropout)},
      {"lora.target_modules", all                           ? "all-linear"
                              : lora.target_modules.empty() ? ""
                                                            : quoted(lora.target_modules)},
      {"lora.modules_to_save", lora.modules_to_save.empty() ? "" : quoted(lora.modules_to_save)},
      {"lora.trainable_token_indices",
       lora.trainable_token_indices.empty() ? "" : fmt::format("[{}]", fmt::join(lora.trainable_token_indices, ", "))},
      {"lora.rslora", fmt::format("{}", lora.rslora)},
      {"lora.use_dora", fmt::format("{}", lora.use_dora)},
      {"lora.init_lora_weights", lora.init_lora_weights},
      {"lora.loraplus_lr_ratio", fmt::format("{}", lora.loraplus_lr_ratio)},
      {"lora.rank_pattern", map_text(lora.rank_pattern)},
      {"lora.alpha_pattern", map_text(lora.alpha_pattern)},
      {"lora.path", text_of(lora.path)}};
}

Values layout_values(const Config& config) {
  const auto& [model, parallel, experts, schedule] =
      std::tie(config.model, config.parallel, config.experts, config.schedule);
  std::string layers_of_recompute;
  if (!schedule.recompute_layers.empty())
    layers_of_recompute = fmt::format("[{}]", fmt::join(schedule.recompute_layers, ", "));
  return {{"model.policy", text_of(model.policy)},
          {"model.path", text_of(model.path)},
          {"model.config", model.config_json},
          {"model.unknown_keys", model.unknown_keys == "warn" ? "" : model.unknown_keys},
          {"model.quantize", model.quantize},
          {"model.quantize_double", model.quantize_double ? "true" : ""},
          {"parallel.tensor", std::to_string(parallel.tensor)},
          {"parallel.pipeline", std::to_string(parallel.pipeline)},
          {"parallel.data", size_text(parallel.data)},
          {"parallel.context", unless_one(parallel.context)},
          {"parallel.context_method", parallel.context_method == "auto" ? "" : parallel.context_method},
          {"parallel.ulysses", unless_zero(parallel.ulysses)},
          {"parallel.expert", unless_one(parallel.expert)},
          {"parallel.sequence_parallel", fmt::format("{}", parallel.sequence_parallel)},
          {"parallel.tensor_overlap", unless_one(parallel.tensor_overlap)},
          {"parallel.zero", std::to_string(parallel.zero)},
          {"parallel.shard", unless_zero(parallel.shard)},
          {"parallel.gather", parallel.gather == "auto" ? "" : parallel.gather},
          {"parallel.vocabulary", parallel.vocabulary == "stages" ? "" : parallel.vocabulary},
          {"parallel.bucket_mb", fmt::format("{}", parallel.bucket_mb)},
          {"parallel.order", fmt::format("[{}]", fmt::join(parallel.order, ", "))},
          {"experts.dispatch", experts.dispatch == "all_to_all" ? "" : experts.dispatch},
          {"experts.balance", experts.balance == "none" ? "" : experts.balance},
          {"experts.aux_loss", unless_none(experts.aux_loss)},
          {"experts.z_loss", unless_none(experts.z_loss)},
          {"experts.bias_update", unless_none(experts.bias_update)},
          {"schedule.name", quoted(schedule.name)},
          {"schedule.microbatches", text_of(schedule.microbatches)},
          {"schedule.microbatch_size", text_of(schedule.microbatch_size)},
          {"schedule.group_size", unless_zero(schedule.group_size)},
          {"schedule.vocabulary_algorithm",
           parallel.vocabulary == "stages" ? "" : std::to_string(schedule.vocabulary_algorithm)},
          {"schedule.chunks", std::to_string(schedule.chunks)},
          {"schedule.layers", layers_text(schedule)},
          {"schedule.recompute", schedule.recompute},
          {"schedule.recompute_layers", layers_of_recompute},
          {"schedule.memory_limit", schedule.memory_limit > 0 ? byte_size_text(schedule.memory_limit) : ""}};
}

std::string numbers_text(const std::vector<double>& numbers) {
  return numbers.empty() ? "" : fmt::format("[{}]", fmt::join(numbers, ", "));
}

Values image_values(const ImageConfig& pictures) {
  return {
      {"data.image_size", text_of(pictures.image_size)},      {"data.resize", text_of(pictures.resize)},
      {"data.interpolation", pictures.interpolation},         {"data.mean", numbers_text(pictures.mean)},
      {"data.std", numbers_text(pictures.deviation)},         {"data.crop", pictures.crop},
      {"data.crop_scale", numbers_text(pictures.crop_scale)}, {"data.crop_ratio", numbers_text(pictures.crop_ratio)},
      {"data.flip", fmt::format("{}", pictures.flip)}};
}

Values data_values(const Config& config) {
  const auto& [data, evaluation] = std::tie(config.data, config.evaluation);
  if (data.format.empty()) return {};
  return {{"data.format", data.format},
          {"data.path", data.sources.empty() ? quoted(data.path) : ""},
          {"data.sources", sources_text(data)},
          {"data.sequence_length", std::to_string(data.sequence_length)},
          {"data.target_length", std::to_string(data.target_length)},
          {"data.document_mask", fmt::format("{}", data.document_mask)},
          {"data.batch_size", std::to_string(data.batch_size)},
          {"data.shuffle", fmt::format("{}", data.shuffle)},
          {"data.prefetch", std::to_string(data.prefetch)},
          {"data.workers", size_text(data.workers)},
          {"data.cache", text_of(data.cache)},
          {"data.tokenizer", text_of(data.tokenizer)},
          {"data.chat_template", text_of(data.chat_template)},
          {"data.template_kwargs", data.template_kwargs},
          {"data.objective", text_of(data.objective)},
          {"data.mlm_probability", fmt::format("{}", data.mlm_probability)},
          {"data.bos", data.bos},
          {"data.eos", data.eos},
          {"data.loss_on", data.loss_on},
          {"data.bad_lines", data.bad_lines},
          {"evaluation.choices", text_of(evaluation.choices)},
          {"evaluation.prompts", prompts_text(evaluation.prompts)},
          {"evaluation.prompt_tokens", std::to_string(evaluation.prompt_tokens)},
          {"evaluation.path", text_of(evaluation.path)},
          {"evaluation.every", std::to_string(evaluation.every)},
          {"evaluation.batches", std::to_string(evaluation.batches)},
          {"evaluation.only", evaluation.only ? "true" : ""},
          {"evaluation.ema", evaluation.ema ? "true" : ""}};
}

// The keys that have an effect.
std::string objective_text(const ObjectiveConfig& objective) {
  if (!objective.is_on()) return "";
  const std::string& name = objective.name;
  std::string text = "{name: " + name;
  const auto add = [&](const char* key, double value) { text += fmt::format(", {}: {}", key, value); };
  if (name != "reward" && (name != "distill" || objective.loss_type == "jsd")) add("beta", objective.beta);
  const bool is_cpo = name == "cpo";
  if (name == "dpo" || is_cpo) add("label_smoothing", objective.label_smoothing);
  if (name == "dpo" || is_cpo || name == "distill") text += ", loss_type: " + objective.loss_type;
  if (name == "simpo") add("gamma", objective.gamma);
  if (name == "simpo" || is_cpo) add("cpo_alpha", objective.cpo_alpha);
  if (name == "kto") add("desirable_weight", objective.desirable_weight);
  if (name == "kto") add("undesirable_weight", objective.undesirable_weight);
  if (name == "reward") add("center_rewards_coefficient", objective.center_rewards_coefficient);
  if (name == "distill") text += ", teacher: " + quoted(objective.teacher);
  if (const auto& layout = objective.teacher_parallel; layout && name == "distill")
    text += fmt::format(", teacher_parallel: {{tensor: {}, pipeline: {}}}", layout->tensor, layout->pipeline);
  if (name == "distill" && objective.top_k > 0)
    text += fmt::format(", top_k: {}, teacher_cache: {}", objective.top_k, quoted(objective.teacher_cache));
  if (name == "distill") add("temperature", objective.temperature);
  if (name == "distill") add("alpha", objective.alpha);
  if (name == "distill") add("hidden_weight", objective.hidden_weight);
  if (!objective.reference.empty()) text += ", reference: " + quoted(objective.reference);
  if (!objective.reference_cache.empty()) text += ", reference_cache: " + quoted(objective.reference_cache);
  return text + "}";
}

Values training_values(const Config& config) {
  const auto& [optimizer, rates, scale, train] =
      std::tie(config.optimizer, config.lr_schedule, config.loss_scale, config.train);
  return {{"optimizer.name", optimizer.name},
          {"optimizer.lr", fmt::format("{}", optimizer.lr)},
          {"optimizer.betas", fmt::format("[{}, {}]", optimizer.beta1, optimizer.beta2)},
          {"optimizer.eps", fmt::format("{}", optimizer.eps)},
          {"optimizer.weight_decay", fmt::format("{}", optimizer.weight_decay)},
          {"optimizer.clip_grad_norm", text_of(optimizer.clip_grad_norm)},
          {"optimizer.momentum", fmt::format("{}", optimizer.momentum)},
          {"optimizer.no_decay", optimizer.no_decay.empty() ? "" : quoted(optimizer.no_decay)},
          {"optimizer.groups", optimizer.groups.empty() ? "" : groups_text(optimizer.groups)},
          {"lr_schedule.name", rates.name},
          {"lr_schedule.warmup_steps", rates.warmup_ratio > 0 ? "" : std::to_string(rates.warmup_steps)},
          {"lr_schedule.warmup_ratio", unless_none(rates.warmup_ratio)},
          {"lr_schedule.decay_steps", unless_zero(rates.decay_steps)},
          {"lr_schedule.min_lr", rates.min_lr_ratio > 0 ? "" : fmt::format("{}", rates.min_lr)},
          {"lr_schedule.min_lr_ratio", unless_none(rates.min_lr_ratio)},
          {"lr_schedule.power", fmt::format("{}", rates.power)},
          {"lr_schedule.cycles", std::to_string(rates.cycles)},
          {"lr_schedule.milestones",
           rates.milestones.empty() ? "" : fmt::format("[{}]", fmt::join(rates.milestones, ", "))},
          {"lr_schedule.factors", rates.factors.empty() ? "" : fmt::format("[{}]", fmt::join(rates.factors, ", "))},
          {"precision", config.precision},
          {"loss_scale.initial", fmt::format("{}", scale.initial)},
          {"loss_scale.growth_interval", std::to_string(scale.growth_interval)},
          {"loss_scale.hysteresis", std::to_string(scale.hysteresis)},
          {"train.steps", train.epochs > 0 ? "" : unless_zero(train.steps)},
          {"train.epochs", unless_none(train.epochs)},
          {"train.seed", std::to_string(train.seed)},
          {"train.log_every", std::to_string(train.log_every)},
          {"train.log_files", quoted(train.log_files)},
          {"train.otlp", text_of(train.otlp)},
          {"train.audit_every", std::to_string(train.audit_every)},
          {"train.non_finite", train.non_finite},
          {"train.label_smoothing", unless_none(train.label_smoothing)},
          {"train.objective", objective_text(train.objective)},
          {"train.max_minutes", unless_none(train.max_minutes)},
          {"train.neftune_alpha", unless_none(train.neftune_alpha)},
          {"train.ema", unless_none(train.ema)},
          {"train.patience", unless_zero(train.patience)},
          {"train.offload", train.offload == "none" ? "" : train.offload},
          {"train.device_graphs", train.device_graphs ? "true" : ""},
          {"train.freeze", train.freeze.empty() ? "" : quoted(train.freeze)}};
}

Values run_values(const Config& config) {
  const auto& [checkpoint, profile, comm] = std::tie(config.checkpoint, config.profile, config.comm);
  Values values = {{"checkpoint.path", text_of(checkpoint.path)},
                   {"checkpoint.every", std::to_string(checkpoint.every)},
                   {"checkpoint.keep", unless_zero(checkpoint.keep)},
                   {"checkpoint.keep_best", checkpoint.keep_best ? "true" : ""},
                   {"checkpoint.load", text_of(checkpoint.load)},
                   {"checkpoint.async", fmt::format("{}", checkpoint.async)},
                   {"checkpoint.resume", quoted(checkpoint.resume)},
                   {"checkpoint.allow_changes", fmt::format("{}", checkpoint.allow_changes)},
                   {"output", text_of(config.output)},
                   {"comm.backend", comm.backend},
                   {"comm.timeout_seconds", fmt::format("{}", comm.timeout_seconds)},
                   {"comm.threads_per_rank", size_text(comm.threads_per_rank)},
                   {"comm.heartbeat_seconds", fmt::format("{}", comm.heartbeat_seconds)},
                   {"comm.lost_after_seconds", fmt::format("{}", comm.lost_after_seconds)},
                   {"comm.interface", text_of(comm.interface)},
                   {"comm.recorder", std::to_string(comm.recorder)},
                   {"comm.registered_buffers", comm.registered_buffers ? "true" : ""},
                   {"comm.sums_by_rank", comm.sums_by_rank ? "true" : ""},
                   {"libraries", quoted(config.libraries)}};
  if (const ElasticConfig& elastic = config.elastic; elastic.is_on())
    values.merge(Values{{"elastic.min_replicas", std::to_string(elastic.min_replicas)},
                        {"elastic.max_replicas", size_text(elastic.max_replicas)},
                        {"elastic.rejoin", fmt::format("{}", elastic.rejoin)},
                        {"elastic.heartbeat", fmt::format("{}", elastic.heartbeat)}});
  if (profile.active > 0)
    values.merge(Values{{"profile.wait", std::to_string(profile.wait)},
                        {"profile.warmup", std::to_string(profile.warmup)},
                        {"profile.active", std::to_string(profile.active)},
                        {"profile.repeat", std::to_string(profile.repeat)}});
  return values;
}

// Writes the keys of each section in the order of the list of keys, one line per section.
std::string as_yaml(const Values& values, const Config& config) {
  std::string text, open;  // the section of the current line
  for (const auto& key : config_keys()) {
    const auto value = values.find(key.path);
    if (value == values.end() || value->second.empty() || !key.has_effect(config)) continue;
    const std::string path = key.path;
    const auto dot = path.find('.');
    const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
    if (!open.empty()) text += section == open ? ", " : "}\n";
    if (section.empty()) {
      text += fmt::format("{}: {}\n", path, value->second);
    } else {
      text += fmt::format("{}{}: {}", section == open ? "" : section + ": {", path.substr(dot + 1), value->second);
    }
    open = section;
  }
  return open.empty() ? text : text + "}\n";
}

}  // namespace

std::string Config::to_yaml() const {
  Values values = layout_values(*this);
  for (auto&& more :
       {lora_values(lora), data_values(*this), image_values(data.pictures), training_values(*this), run_values(*this)})
    values.insert(more.begin(), more.end());
  const bool is_from_program = model.policy.empty() && model.path.empty() && model.config_json.empty();
  return (is_from_program ? "model: {}\n" : "") + as_yaml(values, *this);
}

std::string Config::to_json() const {
  ConfigFaults faults{.file = "config"};
  return yaml_to_json(parse_yaml(to_yaml(), faults.file), "", faults).dump();
}

}  // namespace gantry
