// The adapters of --adapter: one that becomes a part of the model, or several with names of which one is active.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gantry/booster/named_adapters.h"

namespace gantry::cli {

struct AdapterChoice {
  struct Named {
    std::string name, directory;
  };
  std::string own;           // the directory of a single adapter without a name; empty: none
  std::vector<Named> named;  // in the order of the flags, also if there is one
};

// Reads DIR and NAME=DIR, and the adapter_config.json of each directory. The name of DIR is "default"; a NAME has
// letters, digits, "-", "_" and "." only. Throws UsageError for a name that is given twice, and InputError for a
// directory that has no supported adapter.
AdapterChoice choose_adapters(const std::vector<std::string>& flags);

// Returns the adapter that answers a request: `asked`, or without a value the first one; "": the base. Throws
// InputError for an unknown name, and for the base ("") if the only adapter is a part of the model. `where`: the place
// of the request, for errors.
std::string chosen_adapter(const AdapterChoice& choice, const std::optional<std::string>& asked,
                           const std::string& where);

// Loads the named adapters, after the weights of the model. Null without them. Collective over the world.
// `config`: of the model.
std::unique_ptr<NamedAdapters> load_named_adapters(const AdapterChoice& choice, const Config& config, Boosted& boosted,
                                                   const ProcessGroupMesh& mesh);

// Makes an adapter of chosen_adapter() the active one. Does nothing if `adapters` is null.
void activate_adapter(NamedAdapters* adapters, const std::string& name);

}  // namespace gantry::cli
