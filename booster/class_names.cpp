#include "gantry/booster/class_names.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "gantry/booster/run_task.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/images/image_folder.h"
#include "gantry/data/labelled_lines.h"

namespace gantry {
namespace {

using nlohmann::json;

std::string placeholder(std::size_t label) { return fmt::format("LABEL_{}", label); }

[[noreturn]] void refuse_labels(const char* key, const json& value) {
  throw ConfigError({std::string("model.config.") + key, "the value is " + value.dump(),
                     "the labels 0, 1, 2, ... with different names", "check the model's config.json"});
}

std::int64_t label_of(const char* key, const json& mapping, const std::string& text) {
  std::int64_t label = -1;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), label);
  if (failure != std::errc() || end != text.data() + text.size()) refuse_labels(key, mapping);
  return label;
}

std::map<std::int64_t, std::string> names_by_label(const json& keys) {
  std::map<std::int64_t, std::string> names;
  for (const char* key : {"id2label", "label2id"}) {
    if (!keys.contains(key) || !keys[key].is_object() || keys[key].empty()) continue;
    const json& mapping = keys[key];
    for (const auto& [left, right] : mapping.items()) {
      const bool by_label = std::string(key) == "id2label";
      if (by_label ? !right.is_string() : !right.is_number_integer()) refuse_labels(key, mapping);
      const auto label = by_label ? label_of(key, mapping, left) : right.get<std::int64_t>();
      if (!names.emplace(label, by_label ? right.get<std::string>() : left).second) refuse_labels(key, mapping);
    }
    if (names.begin()->first != 0 || names.rbegin()->first + 1 != static_cast<std::int64_t>(names.size()))
      refuse_labels(key, mapping);
    break;
  }
  return names;
}

std::int64_t labels_of(const Config& config, const json& keys) {
  return static_cast<std::int64_t>(family_or_null(config)->hugging_face_config(keys).at("id2label").size());
}

// The classes of the texts in labelled data; none if labels are numbers.
std::vector<std::string> classes_of_texts(const DataConfig& data, std::int64_t labels) {
  auto names = label_names(files_of_data(data));
  if (static_cast<std::int64_t>(names.size()) > labels)
    throw InputError({"data.path",
                      fmt::format("the data have {} classes, but the model distinguishes {}", names.size(), labels),
                      fmt::format("at most {}", labels), "set model.config.num_labels"});
  return names;
}

}  // namespace

std::vector<std::string> stated_classes(const json& keys) {
  std::vector<std::string> classes;
  for (const auto& [label, name] : names_by_label(keys)) classes.push_back(name);
  bool are_placeholders = true;
  for (std::size_t label = 0; label < classes.size(); ++label)
    are_placeholders = are_placeholders && classes[label] == placeholder(label);
  if (are_placeholders) return {};
  return classes;
}

std::vector<std::string> classes_of_images(const Config& config, const json& keys, std::int64_t labels) {
  const auto stated = stated_classes(keys);
  if (!stated.empty()) return stated;
  if (config.data.sources.empty()) return image_classes(config.data.path, labels, "data.path");
  return image_classes(config.data.sources.front().path, labels, "data.sources[0].path");
}

void drop_replaced_labels(json& file, const json& asked) {
  const auto names = [](const json& keys) { return keys.contains("id2label") || keys.contains("label2id"); };
  const bool other_count =
      asked.contains("num_labels") && file.contains("id2label") && asked["num_labels"] != json(file["id2label"].size());
  if (!names(asked) && !other_count) return;
  file.erase("id2label");
  file.erase("label2id");
  if (names(asked)) file.erase("num_labels");
}

void set_class_names(json& keys, const std::vector<std::string>& names, std::int64_t labels) {
  json by_label = json::object(), by_name = json::object();
  for (std::size_t label = 0; label < std::max(names.size(), static_cast<std::size_t>(labels)); ++label) {
    const std::string name = label < names.size() ? names[label] : placeholder(label);
    by_label[std::to_string(label)] = name;
    by_name[name] = label;
  }
  keys["id2label"] = by_label;
  keys["label2id"] = by_name;
}

void name_classes(Config& config) {
  const DataConfig& data = config.data;
  json keys = model_json(config);
  const std::string& path = data.sources.empty() ? data.path : data.sources.front().path;
  const bool are_images = data.format == "images" && task_of(config) == "images" && is_folder(path),
             are_texts = data.format == "jsonl" && task_of(config) == "classes" && problem_of(config) != kRegression;
  if ((!are_images && !are_texts) || !stated_classes(keys).empty()) return;
  const std::int64_t labels = are_images ? vocabulary_of(config) : labels_of(config, keys);
  const auto names = are_images ? classes_of_images(config, keys, labels) : classes_of_texts(data, labels);
  if (names.empty()) return;
  set_class_names(keys, names, labels);
  config.model.config_json = keys.dump();
}

}  // namespace gantry
