// What a configuration says to the planner, and what it leaves open.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/planner/layout.h"

namespace gantry::planner {

// The keys that a plan chooses where nobody states them: "parallel.tensor", "schedule.name", ... `parallel.context` and
// `parallel.expert` stay 1, and `parallel.vocabulary` stages, unless the file says auto.
const std::vector<std::string>& plannable_keys();

struct PlanRequest {
  Config config;  // with what is open at its default
  Workload workload;
  Layout stated;               // the same for the layout; `data` is 0 where ranks decide it
  std::set<std::string> open;  // of plannable_keys()
};

// Reads the file as `gantry train` does, but that a plannable key may be auto. Keys are open where they are auto or
// absent, with `only_stated` none is. ConfigError as of Config::load, and where the planner does not know the model's
// family, the schedule is a file, parallel.order or schedule.recompute_layers is set, or a name of lora or train.freeze
// matches nothing; InputError as of read_adapter_config(), where lora.path is set.
PlanRequest read_plan_request(const std::string& path, const std::vector<std::string>& sets, bool only_stated);

// Of a run's own configuration, with nothing open. ConfigError as above.
PlanRequest plan_request(const Config& config);

// The keys of plannable_keys() that the file or the overrides give as auto, those of a section that is auto among them;
// none where those alone are that need no plan (parallel.data, parallel.shard). What `gantry train` plans before it
// trains.
std::set<std::string> auto_keys(const std::string& path, const std::vector<std::string>& sets);
// As read_plan_request(), but that a key has to say auto to be open; the size of microbatches is, where nothing states
// it or their number.
PlanRequest read_auto_request(const std::string& path, const std::vector<std::string>& sets);

// The stated layout with so many replicas, whose samples decide the microbatches where no size is stated.
Layout with_data(const PlanRequest& request, int data);

// The layout as overrides of the file ("parallel.tensor=2"), of those keys that have an effect.
std::vector<std::string> overrides_of(const Layout& layout);

// The whole configuration, with the layout that such overrides state in place of what was open; without overrides, what
// is open has its default.
Config configured(const std::string& path, const std::vector<std::string>& sets,
                  const std::vector<std::string>& layout);

// "none", "selective", "parts", "full".
std::string name_of(Recompute recompute);
// "tensor 8, pipeline 4, data 2, 1f1b, microbatch 1, zero 1": what differs from one rank's.
std::string describe(const Layout& layout);

}  // namespace gantry::planner
