// Parquet files as lines of JSON, in a build with Arrow (GANTRY_WITH_ARROW).
#pragma once

#include <filesystem>
#include <memory>

#include "gantry/data/corpus/line_file.h"

namespace gantry {

// Gives a line for each row: an object with the columns that are not null. Structures become objects, and lists
// become lists. Throws InputError for a damaged file, and for columns whose type JSON cannot represent, such as bytes.
std::unique_ptr<PieceReader> open_parquet(const std::filesystem::path& path);

}  // namespace gantry
