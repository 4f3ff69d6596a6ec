// Prints the tensors of a checkpoint as a tree of their dotted names.
#pragma once

#include <string>

#include "gantry/checkpoint/format/catalog.h"

namespace gantry::cli {

// Returns one line per tensor: name, type, shape, size, and the files that store it, with the ranges along the sharded
// dimension. Branches below `depth` levels are summed up in one line; 0: all levels.
std::string tensor_tree(const TensorCatalog& catalog, int depth);

std::string shape_text(const std::vector<std::int64_t>& shape);  // "[2, 3]"

}  // namespace gantry::cli
