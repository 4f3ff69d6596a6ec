// The tensors of a file that torch.save has written. Without LibTorch.
#pragma once

#include <string>
#include <string_view>

#include "gantry/checkpoint/format/safetensors_header.h"

namespace gantry {

// True if the file begins as torch.save's files do, those of versions before 1.6 included.
bool is_torch_file(std::string_view file);

// Reads where the tensors of `file` lie, which is the whole file at `path`: a mapping of names to tensors, in the zip
// format. Nothing in it is executed. Throws InputError, which names `path`, for the older format, for anything else
// than tensors, and for positions, shapes and strides that leave their storage.
SafetensorsHeader parse_pickled_tensors(std::string_view file, const std::string& path);

}  // namespace gantry
