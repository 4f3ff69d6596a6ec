#include "gantry/booster/run_task.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/dataset.h"
#include "gantry/data/labelled_lines.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// True if the labels of the data are one number per class, or lists of classes.
bool has_real_labels(const DataConfig& data) {
  if (data.format == "jsonl") return has_label_lists(files_of_data(data));
  const std::string& path = data.sources.empty() ? data.path : data.sources.front().path;
  if (data.format != "tensors" || !is_file(path)) return false;
  const SafetensorsFile file(path);
  return file.contains("labels") && c10::isFloatingType(file.dtype("labels"));
}

}  // namespace

nlohmann::json model_json(const Config& config) {
  return nlohmann::json::parse(config.model.config_json.empty() ? "{}" : config.model.config_json);
}

const models::ModelFamily* family_or_null(const Config& config) {
  const auto& families = models::families();
  return families.contains(config.model.policy) ? &families.at(config.model.policy) : nullptr;
}

std::string task_of(const Config& config) {
  const auto* family = family_or_null(config);
  if (!family) return config.data.format == "squad" ? "spans" : "tokens";
  return family->task ? family->task(model_json(config)) : "tokens";
}

std::int64_t vocabulary_of(const Config& config) {
  const auto* family = family_or_null(config);
  return family ? family->vocabulary_size(model_json(config)) : std::numeric_limits<std::int64_t>::max();
}

std::vector<std::filesystem::path> files_of_data(const DataConfig& data) try {
  return data_files(data.format, data.sources.empty() ? data.path : data.sources.front().path);
} catch (const InputError&) {
  return {};
}

std::string problem_of(const Config& config) {
  const auto* family = family_or_null(config);
  const std::string task = task_of(config);
  if (!family || !family->problem_type || (task != "images" && task != "classes")) return "";
  const std::string stated = family->problem_type(model_json(config));
  if (stated.empty()) return has_real_labels(config.data) ? kSeveralLabels : "";
  return stated == "single_label_classification" ? "" : stated;
}

}  // namespace gantry
