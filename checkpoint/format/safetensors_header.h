// The header of a safetensors file, checked whole before anything is made of it. Without LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gantry/checkpoint/format/stored_type.h"

namespace gantry {

// A tensor as a file has it: `begin` to `end` in bytes from the start of the data.
struct StoredTensor {
  const StoredType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;
  // In elements. Empty: the elements lie one after the other. Only PyTorch's files have other tensors.
  std::vector<std::int64_t> strides = {};
};

struct SafetensorsHeader {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
  std::uint64_t data_start = 0;  // in bytes from the start of the file
};

// Reads the header at the start of `file`, the whole file. InputError, naming `path`, for whatever is not sound: a
// length, an offset or a size that does not fit (by checked arithmetic), holes, overlaps, bytes that no tensor has,
// unknown types, duplicate keys, keys beyond dtype, shape and data_offsets, nesting; with what the file looks like
// where it is another kind of file.
SafetensorsHeader parse_safetensors_header(std::string_view file, const std::string& path);

// The length and the header for tensors that lie one after the other, padded to a multiple of 8 bytes.
struct NamedTensorShape {
  std::string name;
  const StoredType* type = nullptr;
  std::vector<std::int64_t> shape;
};
std::string make_safetensors_header(const std::vector<NamedTensorShape>& tensors,
                                    const std::map<std::string, std::string>& metadata);

}  // namespace gantry
