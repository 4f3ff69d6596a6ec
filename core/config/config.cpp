#include "gantry/core/config.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "gantry/core/axis.h"
#include "gantry/core/config/byte_size.h"
#include "gantry/core/config/config_available.h"
#include "gantry/core/config/config_keys.h"
#include "gantry/core/config/config_reader.h"
#include "gantry/core/config/config_training.h"
#include "gantry/core/config/device_graphs.h"
#include "gantry/core/config/elastic_rules.h"
#include "gantry/core/config/expert_ranks.h"
#include "gantry/core/config/schedule_choice.h"
#include "gantry/core/config/schedule_names.h"
#include "gantry/core/config/teacher_layout.h"
#include "gantry/core/config/yaml_json.h"
#include "gantry/core/error.h"
#include "gantry/core/io/readable_file.h"
#include "gantry/core/io/yaml_document.h"
#include "gantry/core/layout_string.h"
#include "gantry/core/sharding/zero_level.h"

namespace gantry {
namespace {

constexpr long long kMostRanks = 1'000'000;
constexpr long long kMostPieces = 64;  // maximum number of row chunks: smaller messages are not worth a chunk

void read_model(ConfigSection& root, ConfigFaults& faults, ModelConfig& model) {
  const YAML::Node node = root.node("model");
  if (!node.IsDefined())
    return root.fault("model", "the section is missing", "the model to train",
                      "add model: {policy: gpt2, config: {...}}");
  ConfigSection section(faults, "model", node);
  const std::size_t faults_before = faults.lines.size();
  section.text("policy", model.policy);
  section.text("path", model.path);
  section.text("unknown_keys", model.unknown_keys, {"warn", "refuse"});
  section.text("quantize", model.quantize, {"nf4", "fp4", "int8", "fp8", "mxfp4"});
  section.flag("quantize_double", model.quantize_double);
  const YAML::Node keys = section.node("config");
  if (keys.IsDefined() && !keys.IsMap()) {
    section.fault("config", "the value is not a mapping", "keys of the model's config.json");
  } else if (keys.IsDefined()) {
    model.config_json = yaml_to_json(keys, "model.config", faults).dump();
  }
  const bool is_from_program = node.IsMap() && node.size() == 0;
  if (model.policy.empty() && model.path.empty() && !is_from_program && faults.lines.size() == faults_before)
    root.fault("model", "neither policy nor path is set",
               "model: {policy: gpt2, config: {...}} or model: {path: DIRECTORY}");
  section.finish();
}

void read_parallel(ConfigSection section, ParallelConfig& parallel) {
  section.integer("tensor", parallel.tensor, 1, kMostRanks);
  section.integer("pipeline", parallel.pipeline, 1, kMostRanks);
  const YAML::Node data = section.node("data");
  if (!(data.IsScalar() && data.Scalar() == "auto")) section.integer("data", parallel.data, 1, kMostRanks);
  section.integer("context", parallel.context, 1, kMostRanks);
  section.text("context_method", parallel.context_method);
  section.integer("ulysses", parallel.ulysses, 1, kMostRanks);
  section.integer("expert", parallel.expert, 1, kMostRanks);
  section.flag("sequence_parallel", parallel.sequence_parallel);
  section.integer("tensor_overlap", parallel.tensor_overlap, 1, kMostPieces);
  section.integer("zero", parallel.zero, 0, kHighestZero);
  const YAML::Node shard = section.node("shard");
  if (!(shard.IsScalar() && shard.Scalar() == "auto")) section.integer("shard", parallel.shard, 1, kMostRanks);
  section.text("gather", parallel.gather);
  section.text("vocabulary", parallel.vocabulary, {"stages", "pipeline", "auto"});
  section.number("bucket_mb", parallel.bucket_mb, 0, 1 << 20, /*open_below=*/true);
  section.texts("order", parallel.order);
  auto sorted = parallel.order;
  std::sort(sorted.begin(), sorted.end());
  std::erase(sorted, axis::kContext);
  const bool twice =
      static_cast<std::size_t>(std::count(parallel.order.begin(), parallel.order.end(), axis::kContext)) > 1;
  if (twice || sorted != std::vector<std::string>{axis::kData, axis::kPipeline, axis::kTensor})
    section.fault("order", fmt::format("[{}]", fmt::join(parallel.order, ", ")),
                  "a permutation of [pp, dp, tp], optionally with cp");
  section.finish();
}

void read_experts(ConfigSection section, ExpertsConfig& experts) {
  section.text("dispatch", experts.dispatch, {"all_to_all", "all_gather"});
  section.text("balance", experts.balance, {"none", "sequence", "microbatch", "transformers"});
  section.number("aux_loss", experts.aux_loss, 0, 1e9);
  section.number("z_loss", experts.z_loss, 0, 1e9);
  section.number("bias_update", experts.bias_update, 0, 1e9);
  if (experts.balance != "none" && experts.aux_loss == 0)
    section.fault("balance", "the coefficient of the loss " + experts.balance + " is 0", "experts.aux_loss above 0",
                  "set the coefficient, or remove experts.balance");
  for (const char* key : {"capacity_factor", "capacity"})
    if (section.has(key))
      section.fault(key, "the key is not supported",
                    "a configuration without it: experts accept every token that is routed to them", "remove the key");
  section.finish();
}

void read_memory_limit(ConfigSection& section, ScheduleConfig& schedule) {
  std::string limit;
  section.text("memory_limit", limit);
  if (section.has("memory_limit")) {
    if (const auto bytes = parse_byte_size(limit))
      schedule.memory_limit = *bytes;
    else
      section.fault("memory_limit", "'" + limit + "' is not a size",
                    "a number above 0 with B, kB, MB, GB, KiB, MiB or GiB", "such as 20 GiB");
  }
  if (schedule.recompute == "auto" && !section.has("memory_limit"))
    section.fault("recompute", "the value auto needs a memory limit",
                  "schedule.memory_limit, the limit in bytes per rank", "add schedule.memory_limit, such as 20 GiB");
}

void read_schedule(ConfigSection section, ScheduleConfig& schedule) {
  section.text("name", schedule.name);
  if (section.has("microbatches") && section.has("microbatch_size"))
    section.fault("microbatch_size", "both microbatch_size and microbatches are set", "", "remove one of them");
  int count = 0;
  if (section.integer("microbatches", count, 1); count > 0) schedule.microbatches = count;
  count = 0;
  if (section.integer("microbatch_size", count, 1); count > 0) schedule.microbatch_size = count;
  schedule.chunks = default_chunks(schedule.name);
  section.integer("chunks", schedule.chunks, 1, 1000);
  section.integer("group_size", schedule.group_size, 1);
  section.integer("vocabulary_algorithm", schedule.vocabulary_algorithm, 1, 2);
  if (const int least = default_chunks(schedule.name); schedule.chunks < least)
    section.fault("chunks",
                  fmt::format("{} chunks with schedule {}, which passes through the ranks in both directions",
                              schedule.chunks, schedule.name),
                  fmt::format("at least {}", least));
  if (const YAML::Node layers = section.node("layers"); layers.IsSequence()) {
    if (auto list = section.integers("layers", 0)) schedule.layers = *list;
  } else if (layers.IsMap()) {
    const YAML::Node& mapping = layers;
    if (const YAML::Node run = mapping["balanced"]; mapping.size() == 1 && run.IsDefined() && run.IsScalar())
      schedule.layers = "balanced: " + run.Scalar();
    else
      section.fault("layers", "the mapping has other keys", "{balanced: DIRECTORY}, the output directory of a run");
  } else {
    std::string name = std::get<std::string>(schedule.layers);
    section.text("layers", name);
    schedule.layers = name;
  }
  section.text("recompute", schedule.recompute, {"none", "selective", "parts", "full", "auto"});
  read_memory_limit(section, schedule);
  if (section.node("recompute_layers").IsSequence()) {
    if (auto list = section.integers("recompute_layers", 0)) schedule.recompute_layers = *list;
  } else if (int layers = -1; section.integer("recompute_layers", layers, 0), layers >= 0) {
    schedule.recompute_layers = {layers};
  }
  section.finish();
}

// The number of layers in the model's keys; 0: it is not known here. An image encoder has layers too.
int stated_layers(const ModelConfig& model) {
  if (model.config_json.empty()) return 0;
  const nlohmann::json keys = nlohmann::json::parse(model.config_json);
  return keys.is_object() && keys.value("image_encoder", nlohmann::json()) == true ? 0 : layers_in(keys);
}

// Compares the stages and layers of a list or layout string with the other keys.
void check_layers(ConfigFaults& faults, const YAML::Node& root, const Config& config) {
  const int pipeline = config.parallel.pipeline;
  const auto* name = std::get_if<std::string>(&config.schedule.layers);
  if (is_balanced(config.schedule) || (name && *name == "default")) return;
  const YAML::Mark mark = mark_of_key(root, "schedule.layers");
  std::vector<int> layers;
  try {
    layers = name ? parse_layout_string(*name, "").layers : std::get<std::vector<int>>(config.schedule.layers);
  } catch (const ConfigError& error) {
    return faults.add("schedule.layers", mark, error.what(), "", "or use default, balanced or a list");
  }
  const long long stages =
      static_cast<long long>(pipeline) * config.schedule.chunks;  // a schedule file has its own stages
  const long long total = std::accumulate(layers.begin(), layers.end(), 0LL);
  const std::string stated = name ? "'" + *name + "' has" : std::string("the list has");
  if (!is_schedule_file(config.schedule.name) && static_cast<long long>(layers.size()) != stages)
    faults.add("schedule.layers", mark,
               fmt::format("{} {} stages with {} layers, but pipeline {} * chunks {} = {} stages", stated,
                           layers.size(), total, pipeline, config.schedule.chunks, stages),
               fmt::format("{} stages", stages), "list the layers of every stage");
  if (const int in_model = stated_layers(config.model); in_model > 0 && total != in_model)
    faults.add("schedule.layers", mark, fmt::format("{} {} layers, but the model has {}", stated, total, in_model),
               fmt::format("{} layers in all", in_model), "put every layer into exactly one stage");
}

// Compares the length of a recompute_layers list with the number of stages.
void check_recompute(ConfigFaults& faults, const YAML::Node& root, const Config& config) {
  const auto& list = config.schedule.recompute_layers;
  const long long stages = static_cast<long long>(config.parallel.pipeline) * config.schedule.chunks;
  if (list.size() <= 1 || is_schedule_file(config.schedule.name) || static_cast<long long>(list.size()) == stages)
    return;
  faults.add("schedule.recompute_layers", mark_of_key(root, "schedule.recompute_layers"),
             fmt::format("{} entries, but pipeline {} * chunks {} = {} stages", list.size(), config.parallel.pipeline,
                         config.schedule.chunks, stages),
             fmt::format("{} entries, or one number for all", stages));
}

// The losses of objectives need full logits, which no rank has.
std::optional<ErrorText> fault_of_shared_vocabulary(const Config& config) {
  const std::string& objective = config.train.objective.name;
  if (objective.empty() || config.parallel.vocabulary != "pipeline" || config.parallel.pipeline == 1)
    return std::nullopt;
  return ErrorText{"parallel.vocabulary",
                   fmt::format("the value is pipeline, which train.objective {} does not support", objective),
                   "stages with train.objective", "remove one of the two keys"};
}

// Checkpoints of adapters have no biases of the base.
std::optional<ErrorText> fault_of_expert_biases(const Config& config) {
  if (config.experts.bias_update == 0 || !config.lora.is_on()) return std::nullopt;
  return ErrorText{"experts.bias_update", "the biases of experts belong to the base, which lora does not train",
                   "0 with lora", "remove the key, or the section lora"};
}

// Checks that involve several keys.
void check_sizes(ConfigFaults& faults, const YAML::Node& root, const Config& config) {
  const int tensor = config.parallel.tensor, pipeline = config.parallel.pipeline, data = config.parallel.data,
            context = config.parallel.context;
  const long long replicas = std::max(1, data);
  if (static_cast<long long>(tensor) * pipeline > kMostRanks / replicas / context)
    faults.add("parallel", mark_of_key(root, "parallel"),
               fmt::format("tensor {} * pipeline {} * {}data {} ranks", tensor, pipeline,
                           context > 1 ? fmt::format("context {} * ", context) : "", replicas),
               fmt::format("at most {}", kMostRanks));
  for (const auto& fault :
       {fault_of_experts(config.parallel), fault_of_device_graphs(config), fault_of_elastic(config),
        fault_of_teacher(config), fault_of_expert_biases(config), fault_of_shared_vocabulary(config)})
    if (fault) faults.add(fault->where, mark_of_key(root, fault->where), fault->what, fault->expected, fault->remedy);
  if (!config.data.format.empty() && config.data.batch_size < replicas)
    faults.add("data.batch_size", mark_of_key(root, "data.batch_size"),
               fmt::format("{} samples over data {} replicas leave {} without one", config.data.batch_size, replicas,
                           replicas - config.data.batch_size),
               fmt::format("at least {}", replicas), "raise it, or lower parallel.data");
}

Config read_all(const YAML::Node& document, ConfigFaults& faults) {
  Config config;
  ConfigSection root(faults, "", document);
  read_model(root, faults, config.model);
  read_lora(faults, root, config);
  read_parallel({faults, "parallel", root.node("parallel")}, config.parallel);
  read_experts({faults, "experts", root.node("experts")}, config.experts);
  read_schedule({faults, "schedule", root.node("schedule")}, config.schedule);
  read_training(faults, root, config);
  root.text("output", config.output);
  root.texts("libraries", config.libraries);
  root.finish();
  check_layers(faults, document, config);
  check_recompute(faults, document, config);
  check_sizes(faults, document, config);
  return config;
}

// Sets a value at a dotted path, and creates the mappings on the way.
void set_path(YAML::Node root, const std::string& path, const YAML::Node& value) {
  const auto dot = path.find('.');
  const std::string key = path.substr(0, dot);
  if (dot == std::string::npos) {
    root[key] = value;
  } else {
    if (!root[key].IsMap()) root[key] = YAML::Node(YAML::NodeType::Map);
    set_path(root[key], path.substr(dot + 1), value);
  }
}

bool has_path(const YAML::Node& root, const std::string& path) {
  const auto dot = path.find('.');
  const YAML::Node node = root.IsMap() ? root[path.substr(0, dot)] : YAML::Node(YAML::NodeType::Undefined);
  if (!node.IsDefined() || dot == std::string::npos) return node.IsDefined();
  return has_path(node, path.substr(dot + 1));
}

void apply_overrides(YAML::Node& document, const std::vector<std::string>& overrides, ConfigFaults& faults) {
  for (const auto& text : overrides) {
    if (text.starts_with("--"))
      throw UsageError(
          {text, "the argument is a flag", "arguments KEY=VALUE, such as parallel.tensor=2", "leave the flag out"});
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError(
          {"--set " + text, "the override has no value", "--set key=value", "such as --set parallel.tensor=2"});
    const std::string path = text.substr(0, equals);
    const std::string value = text.substr(equals + 1);
    // A value that begins with '*' is a glob pattern, not a YAML alias. An empty one is an empty text.
    set_path(document, path,
             value.starts_with('*') || value.empty() ? YAML::Node(value) : parse_yaml(value, "--set " + path));
    faults.overridden.insert(path);
  }
}

Config parse_text(const std::string& text, const std::string& name, const std::vector<std::string>& overrides,
                  bool is_written) {
  ConfigFaults faults{.file = name, .overridden = {}, .lines = {}};
  YAML::Node document = parse_yaml(text, name);
  if (document.IsNull()) document = YAML::Node(YAML::NodeType::Map);
  if (document.IsMap()) apply_overrides(document, overrides, faults);
  Config config = read_all(document, faults);
  report_unavailable(config, document, faults);
  check_effects(config, document, /*only_overridden=*/is_written, faults);
  if (!faults.lines.empty()) throw ConfigError(faults.joined());
  for (const auto& key : checked_keys())
    if (has_path(document, key)) config.used_keys->give(key);
  return config;
}

void require_sections(const std::vector<std::string>& missing) {
  if (!missing.empty())
    throw ConfigError({"configuration", fmt::format("{} is missing", fmt::join(missing, " and ")),
                       "the sections and keys that training needs", "add the missing keys"});
}

}  // namespace

Config Config::parse(const std::string& text, const std::string& name, const std::vector<std::string>& overrides) {
  return parse_text(text, name, overrides, /*is_written=*/false);
}

Config Config::parse_written(const std::string& text, const std::string& name,
                             const std::vector<std::string>& overrides) {
  return parse_text(text, name, overrides, /*is_written=*/true);
}

Config Config::load(const std::string& path, const std::vector<std::string>& overrides) {
  std::ifstream file = open_for_reading(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw ConfigError({path, "the file cannot be read", "a configuration file", "check the path"});
  return parse(text, path, overrides);
}

void Config::require_training() const {
  std::vector<std::string> missing;
  if (data.format.empty()) missing.push_back("data (format, path, ...)");
  if (train.steps == 0 && train.epochs == 0 && !evaluation.only) missing.push_back("train.steps");
  require_sections(missing);
}

void Config::require_steps() const {
  if (train.steps == 0 && train.epochs == 0 && !evaluation.only) require_sections({"train.steps"});
}

void Config::require_model() const {
  if (model.policy.empty() && model.path.empty())
    throw ConfigError({"model", "neither policy nor path is set",
                       "model: {policy: gpt2, config: {...}} or model: {path: DIRECTORY}",
                       "set one of them; only a program that passes its own model to the Trainer needs neither"});
}

int Config::ranks() const {
  return parallel.tensor * parallel.pipeline * parallel.context * std::max(1, parallel.data);
}

}  // namespace gantry
