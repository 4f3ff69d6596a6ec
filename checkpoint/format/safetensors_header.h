// The header of a safetensors file. It is checked completely before it is used. Without LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gantry/checkpoint/format/stored_type.h"

namespace gantry {

// A tensor in a file: its bytes are [begin, end), counted from the start of the data.
struct StoredTensor {
  const StoredType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;
  // In elements. Empty: the elements are contiguous. Only files of PyTorch have other tensors.
  std::vector<std::int64_t> strides = {};
};

struct SafetensorsHeader {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
  std::uint64_t data_start = 0;  // in bytes from the start of the file
};

// Reads the header at the start of `file`, which must be the full file. Throws InputError, naming `path`, if
// a length, an offset or a size does not fit (with checked arithmetic), or if tensors leave holes, overlap,
// or do not cover all bytes. Unknown types, duplicate keys, nesting, and keys other than dtype, shape and
// data_offsets are errors too. For another kind of file the error describes its likely form.
SafetensorsHeader parse_safetensors_header(std::string_view file, const std::string& path);

// Tensors for make_safetensors_header(). It returns the length and the header of a file in which they are
// contiguous, padded to a multiple of 8 bytes.
struct NamedTensorShape {
  std::string name;
  const StoredType* type = nullptr;
  std::vector<std::int64_t> shape;
};
std::string make_safetensors_header(const std::vector<NamedTensorShape>& tensors,
                                    const std::map<std::string, std::string>& metadata);

}  // namespace gantry
