#include "gantry/models/described/sentence_modules.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/core/io/strict_json.h"
#include "gantry/core/mapped_file.h"
#include "gantry/models/described/config_keys.h"

namespace gantry::models {
namespace {

using nlohmann::json;

// Older files have a flag for each mode. Their embeddings are concatenated in this order.
struct PoolingFlag {
  const char *flag, *mode;
};
constexpr std::array<PoolingFlag, 6> kPoolingFlags = {{{"pooling_mode_cls_token", "cls"},
                                                       {"pooling_mode_max_tokens", "max"},
                                                       {"pooling_mode_mean_tokens", "mean"},
                                                       {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
                                                       {"pooling_mode_weightedmean_tokens", "weightedmean"},
                                                       {"pooling_mode_lasttoken", "lasttoken"}}};

json read_module_file(const std::string& path) {
  json read;
  if (const std::string fault = parse_strict(MappedFile(path).text(), read); !fault.empty())
    throw InputError({path, fault, "a file of sentence-transformers", "save the model again"});
  return read;
}

// "sentence_transformers.models.Pooling" and later names end with the name of the class.
std::string class_of_module(const json& module) {
  const std::string type = module.value("type", std::string());
  return type.substr(type.rfind('.') + 1);
}

// True for an element of modules.json, whose path is empty or names a subdirectory.
bool is_listed_module(const json& module) {
  const auto is_text = [&](const char* key) { return !module.contains(key) || module[key].is_string(); };
  if (!module.is_object() || !is_text("type") || !is_text("path")) return false;
  const std::string path = module.value("path", std::string());
  return path.empty() || is_plain_file_name(path);
}

// True for an element of kSentenceModules. The key may also be in a file that Gantry did not write.
bool is_added_module(const json& module) {
  return module.is_object() && module.contains("config") &&
         std::ranges::all_of(std::array{"class", "path", "where"},
                             [&](const char* key) { return module.contains(key) && module[key].is_string(); });
}

[[noreturn]] void refuse_module(const std::string& where, const std::string& what, const std::string& expected) {
  throw ConfigError(
      {where, what, expected, "set model.config.architectures to read the model without its sentence embedding"});
}

std::vector<std::string> modes_in(const std::string& where, const json& config) {
  if (config.contains("pooling_mode")) {
    const json& stated = config["pooling_mode"];
    const json list = stated.is_array() ? stated : json::array({stated});
    const bool are_names = std::ranges::all_of(list, [](const json& mode) { return mode.is_string(); });
    if (!are_names || list.empty())
      refuse_module(where, "pooling_mode is " + stated.dump(), "the name of a mode, or a list of names");
    return list.get<std::vector<std::string>>();
  }
  std::vector<std::string> modes;
  for (const auto& [flag, mode] : kPoolingFlags)
    if (config.value(flag, json(false)) == true) modes.emplace_back(mode);
  if (modes.empty()) modes.emplace_back("mean");
  return modes;
}

SentencePooling read_pooling(const std::string& where, const json& config) {
  SentencePooling pooling{.modes = modes_in(where, config)};
  constexpr std::array<const char*, 5> kKnown = {"cls", "max", "mean", "mean_sqrt_len_tokens", "lasttoken"};
  for (const std::string& mode : pooling.modes)
    if (std::ranges::find(kKnown, mode) == kKnown.end())
      refuse_module(where, "Gantry does not support the pooling mode " + mode,
                    fmt::format("{}", fmt::join(kKnown, ", ")));
  if (config.value("include_prompt", json(true)) != true)
    refuse_module(where, "include_prompt is false, but Gantry does not know the length of a prompt",
                  "include_prompt: true");
  return pooling;
}

void check_normalize(const std::string& where, const json& config) {
  for (const char* key : {"module_input_name", "module_output_name"})
    if (has_key(config, key) && config[key] != "sentence_embedding")
      refuse_module(where, fmt::format("{} is {}", key, config[key].dump()), "sentence_embedding");
}

}  // namespace

void add_sentence_modules(json& keys, const std::string& directory) {
  const std::string path = directory + "/modules.json";
  if (!path_exists(path)) return;
  const json listed = read_module_file(path);
  if (!listed.is_array() || !std::ranges::all_of(listed, is_listed_module))
    throw InputError({path, "the file is not a list of modules", "objects with a type and the path of a subdirectory",
                      "save the model again"});
  json modules = json::array();
  for (const json& module : listed) {
    const std::string folder = module.value("path", std::string()), file = directory + "/" + folder + "/config.json";
    const std::string name = class_of_module(module);
    // A directory without the modes of its Pooling is incomplete.
    const bool has_file = !folder.empty() && (name == "Pooling" || path_exists(file));
    modules.push_back({{"class", name},
                       {"path", folder},
                       {"where", has_file ? file : path},
                       {"config", has_file ? read_module_file(file) : json::object()}});
  }
  const bool embeds = std::ranges::any_of(modules, [](const json& module) { return module["class"] == "Pooling"; });
  if (embeds) keys[kSentenceModules] = modules;
}

void leave_out_sentences(json& config) {
  for (const char* key : {kSentenceModules, kSentencePairs}) config.erase(key);
}

std::optional<SentencePooling> read_sentence_modules(ConfigReader& reader) {
  const json modules = reader.has(kSentenceModules) ? reader.keys()[kSentenceModules] : json::array();
  if (!modules.is_array() || !std::ranges::all_of(modules, is_added_module))
    refuse_key(kSentenceModules, modules, "no such key, because modules.json lists the modules");
  const std::array<const char*, 3> order = {"Transformer", "Pooling", "Normalize"};
  SentencePooling pooling;
  for (std::size_t index = 0; index < modules.size(); ++index) {
    const json& module = modules[index];
    const std::string name = module["class"], where = module["where"];
    const json& config = module["config"];
    if (index >= order.size() || name != order[index])
      refuse_module(where, fmt::format("Gantry does not compute module {}, {}", index, name),
                    "Transformer, Pooling and optionally Normalize, in this order");
    if (name == "Transformer" && module["path"] != "")
      refuse_module(where, "the Transformer is in the subdirectory " + module["path"].get<std::string>(),
                    "a Transformer in the directory itself");
    if (!config.is_object()) refuse_module(where, "the file is " + config.dump(), "an object");
    if (name == "Pooling") pooling = read_pooling(where, config);
    if (name == "Normalize") {
      check_normalize(where, config);
      pooling.normalizes = true;
    }
  }
  reader.ignore(kSentencePairs);
  pooling.compares = flag_key(reader.keys(), kSentencePairs, false);
  if (pooling.modes.empty() && pooling.compares)
    throw ConfigError({std::string("model.config.") + kSentencePairs,
                       "the value is true, but the model computes no sentence embedding",
                       "a model.path whose modules.json lists a Pooling, and no model.config.architectures",
                       "write modules.json, or remove the key"});
  if (pooling.modes.empty()) return std::nullopt;
  reader.decides("sentence_pooling", pooling.modes);
  reader.decides("sentence_normalize", pooling.normalizes);
  return pooling;
}

}  // namespace gantry::models
