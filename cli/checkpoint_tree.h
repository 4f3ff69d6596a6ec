// The tensors of a checkpoint as a tree of their dotted names, for people.
#pragma once

#include <string>

#include "gantry/checkpoint/format/catalog.h"

namespace gantry::cli {

// A line a tensor: name, type, shape, size, and the files (with ranges along the cut dim) that it lies in. Below
// `depth` levels a branch is one line of its sum; 0: all levels.
std::string tensor_tree(const TensorCatalog& catalog, int depth);

std::string shape_text(const std::vector<std::int64_t>& shape);  // "[2, 3]"

}  // namespace gantry::cli
