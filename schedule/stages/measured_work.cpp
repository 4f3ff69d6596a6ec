#include "gantry/schedule/stages/measured_work.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"

namespace gantry {
namespace {

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw ConfigError({"schedule.layers", file + ": " + what,
                     "the output directory of a run that has measured its layers",
                     "train some steps with `output` set and use that directory, or use `balanced` alone"});
}

double time_in(const nlohmann::json& entry, const std::string& file) {
  if (!entry.is_number() || !std::isfinite(entry.get<double>()) || entry.get<double>() < 0)
    refuse(file, "the entry layer_times has the value " + entry.dump());
  return entry.get<double>();
}

}  // namespace

nlohmann::ordered_json to_json(const LayerWork& measured) {
  return {{"layers", measured.layers}, {"first", measured.first}, {"last", measured.last}};
}

LayerWork read_measured_work(const std::string& folder) {
  const std::string path = folder + "/report.json";
  std::ifstream file(path);
  if (!file) refuse(path, "the file cannot be read");
  const nlohmann::json report = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object()) refuse(path, "the file is not a JSON object");
  const auto times = report.find("layer_times");
  if (times == report.end() || !times->is_object() || !times->contains("layers") || !(*times)["layers"].is_array())
    refuse(path, "the report has no entry layer_times");
  LayerWork work;
  for (const auto& layer : (*times)["layers"]) work.layers.push_back(time_in(layer, path));
  work.first = time_in(times->value("first", nlohmann::json(0)), path);
  work.last = time_in(times->value("last", nlohmann::json(0)), path);
  return work;
}

}  // namespace gantry
