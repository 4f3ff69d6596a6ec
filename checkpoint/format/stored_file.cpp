#include "gantry/checkpoint/format/stored_file.h"

#include <cstring>

#include "gantry/checkpoint/format/pickled_tensors.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

SafetensorsHeader parse_header(std::string_view file, const std::string& path) {
  return is_torch_file(file) ? parse_pickled_tensors(file, path) : parse_safetensors_header(file, path);
}

}  // namespace

StoredFile::StoredFile(const std::string& path) : path_(path), file_(path), header_(parse_header(file_.text(), path)) {}

std::vector<unsigned char> StoredFile::elements(const StoredTensor& tensor) const {
  const auto stored = bytes(tensor);
  if (tensor.strides.empty()) return {stored.begin(), stored.end()};
  const auto width = static_cast<std::size_t>(tensor.type->bits) / 8;
  std::vector<unsigned char> gathered(stored_bytes(*tensor.type, tensor.shape).value());
  std::vector<std::int64_t> index(tensor.shape.size(), 0);
  for (std::size_t to = 0; to < gathered.size(); to += width) {
    std::int64_t from = 0;
    for (std::size_t dim = 0; dim < index.size(); ++dim) from += index[dim] * tensor.strides[dim];
    std::memcpy(gathered.data() + to, stored.data() + static_cast<std::size_t>(from) * width, width);
    for (std::size_t dim = index.size(); dim > 0 && ++index[dim - 1] == tensor.shape[dim - 1]; --dim)
      index[dim - 1] = 0;
  }
  return gathered;
}

const StoredTensor& StoredFile::at(const std::string& name) const {
  if (const auto found = header_.tensors.find(name); found != header_.tensors.end()) return found->second;
  throw InputError({path_, "the file has no tensor '" + name + "'", "", "check that the file belongs to this model"});
}

}  // namespace gantry
