// The planner's input from a configuration: the keys that it sets, and those that are open.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/planner/layout.h"

namespace gantry::planner {

// The keys that a plan can choose if they are not set: "parallel.tensor", "schedule.name", ... Unless the file sets
// them to auto, `parallel.context` and `parallel.expert` stay 1 and `parallel.vocabulary` stays stages.
const std::vector<std::string>& plannable_keys();

// The input of a search: a configuration, and its open keys.
struct PlanRequest {
  Config config;  // open keys have their defaults
  Workload workload;
  Layout stated;  // the layout, with defaults for open keys; `data` is 0 if it follows from the number of ranks
  std::set<std::string> open;  // a subset of plannable_keys()
};

// Reads the file like `gantry train`, except that a plannable key may be auto. Keys that are auto or absent are open;
// with `only_stated`, none is.
// Throws ConfigError like Config::load, and if the planner does not support the model's family or a schedule from a
// file. It also throws if parallel.order or schedule.recompute_layers is set, or if a name in lora or train.freeze
// matches nothing. Throws InputError like read_adapter_config() if lora.path is set.
PlanRequest read_plan_request(const std::string& path, const std::vector<std::string>& sets, bool only_stated);

// For a run's own configuration, without open keys. Throws ConfigError as above.
PlanRequest plan_request(const Config& config);

// Returns the keys of plannable_keys() that the file or the overrides set to auto, individually or by a section that is
// auto. Empty if these are only keys that need no plan (parallel.data, parallel.shard). `gantry train` plans them
// before it trains.
std::set<std::string> auto_keys(const std::string& path, const std::vector<std::string>& sets);
// Like read_plan_request(), but only keys that are set to auto are open, and the size of microbatches if neither it nor
// their number is set.
PlanRequest read_auto_request(const std::string& path, const std::vector<std::string>& sets);

// Returns the layout of the request with `data` replicas. If no size is set, the number of samples per replica
// determines the microbatches.
Layout with_data(const PlanRequest& request, int data);

// Returns the layout as overrides of the file ("parallel.tensor=2"), only with keys that have an effect.
std::vector<std::string> overrides_of(const Layout& layout);

// Returns the full configuration with these overrides for the open keys; without overrides, open keys have their
// defaults.
Config configured(const std::string& path, const std::vector<std::string>& sets,
                  const std::vector<std::string>& layout);

// "none", "selective", "parts", "full".
std::string name_of(Recompute recompute);
// "tensor 8, pipeline 4, data 2, 1f1b, microbatch 1, zero 1": the differences from a single rank.
std::string describe(const Layout& layout);

// The libraries that the file or an override lists. Checks nothing else, so that it can be called before the libraries
// register the families that other keys name.
std::vector<std::string> stated_libraries(const std::string& path, const std::vector<std::string>& sets);

}  // namespace gantry::planner
