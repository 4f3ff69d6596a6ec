#include "gantry/core/config/config_available.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/config/schedule_names.h"
#include "gantry/core/error.h"

namespace gantry {
void report_unavailable(const Config& config, const YAML::Node& document, ConfigFaults& faults) {
  if (!document.IsMap()) return;
  auto require = [&](const std::string& section, const std::string& key, const std::string& value,
                     const std::vector<std::string>& available) {
    if (std::find(available.begin(), available.end(), value) != available.end()) return;
    const std::string near = nearest_name(value, available);
    const std::string path = key.empty() ? section : section + "." + key;
    faults.add(path, mark_of_key(document, path), "'" + value + "' is not supported by this version",
               fmt::format("one of {}", fmt::join(available, ", ")),
               near.empty() ? "" : "did you mean '" + near + "'?");
  };
  if (!is_schedule_file(config.schedule.name)) {
    std::vector<std::string> names;
    for (const auto& known : schedule_names()) names.push_back(known.name);
    names.push_back("a FILE.csv");
    require("schedule", "name", config.schedule.name, names);
  }
  require("parallel", "context_method", config.parallel.context_method,
          {"auto", "all_gather", "ring", "ulysses", "ulysses_ring"});
  require("parallel", "gather", config.parallel.gather, {"auto", "step", "window", "microbatch"});
  require("optimizer", "name", config.optimizer.name,
          {"adamw", "adamw8bit", "adamw_bf16", "adafactor", "sgd", "lion", "muon"});
  require("lr_schedule", "name", config.lr_schedule.name,
          {"constant", "linear", "cosine", "cosine_with_restarts", "wsd", "polynomial", "inverse_sqrt", "piecewise"});
  require("precision", "", config.precision, {"float32", "float64", "bfloat16", "float16"});
}

}  // namespace gantry
