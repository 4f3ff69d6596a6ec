// The names that the pickle of a mapping of tensors refers to.
#pragma once

#include <optional>
#include <string>

#include "gantry/checkpoint/format/pickle.h"

namespace gantry {

// Returns nothing for a name that torch.save does not use for a mapping of tensors.
std::optional<PickleGlobal> known_pickle_global(const std::string& name);

// Returns the result of a call of a known global. Throws std::invalid_argument for other arguments than torch.save
// writes.
PickleValue call_pickle_global(const PickleGlobal& global, const PickleTuple& arguments);

// The storage that a persistent id describes. Throws std::invalid_argument for other ids.
PickleStorage pickle_storage(const PickleTuple& id);

}  // namespace gantry
