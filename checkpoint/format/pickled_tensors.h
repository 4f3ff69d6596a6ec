// The tensors of a file that torch.save has written. Without LibTorch.
#pragma once

#include <string>
#include <string_view>

#include "gantry/checkpoint/format/safetensors_header.h"

namespace gantry {

// True if the file has the beginning of a torch.save file, including those of versions before 1.6.
bool is_torch_file(std::string_view file);

// Reads the positions of the tensors in `file`, the full contents of `path`: a mapping of names to tensors,
// in the zip format. Nothing in it is executed. Throws InputError, which names `path`, for the older format,
// for values other than tensors, and for positions, shapes and strides that exceed their storage.
SafetensorsHeader parse_pickled_tensors(std::string_view file, const std::string& path);

}  // namespace gantry
