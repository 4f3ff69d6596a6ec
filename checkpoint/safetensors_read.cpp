#include <cstring>

#include "gantry/checkpoint/format/stored_file.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(std::make_unique<const StoredFile>(path)) {}

SafetensorsFile::~SafetensorsFile() = default;

bool SafetensorsFile::contains(const std::string& name) const { return file_->header().tensors.contains(name); }

const std::vector<std::int64_t>& SafetensorsFile::shape(const std::string& name) const { return file_->at(name).shape; }

const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return file_->header().metadata; }

torch::ScalarType SafetensorsFile::dtype(const std::string& name) const {
  return scalar_type_of(*file_->at(name).type, file_->path() + " '" + name + "'");
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file_->header().tensors) names.push_back(name);
  return names;
}

torch::Tensor SafetensorsFile::view(const std::string& name) const {
  const StoredTensor& stored = file_->at(name);
  const auto bytes = file_->bytes(stored);
  const torch::TensorOptions options(dtype(name));
  if (!stored.strides.empty()) {
    const auto elements = file_->elements(stored);
    torch::Tensor copy = torch::empty(stored.shape, options);
    std::memcpy(copy.data_ptr(), elements.data(), elements.size());
    return copy;
  }
  // Files of other programs need not align their tensors.
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % c10::elementSize(dtype(name)) != 0) {
    torch::Tensor copy = torch::empty(stored.shape, options);
    std::memcpy(copy.data_ptr(), bytes.data(), bytes.size());
    return copy;
  }
  return torch::from_blob(const_cast<unsigned char*>(bytes.data()), stored.shape, options);
}

torch::Tensor SafetensorsFile::read(const std::string& name) const { return view(name).clone(); }

torch::Tensor SafetensorsFile::read_slice(const std::string& name, int dim, const std::vector<Range>& ranges) const {
  return take_ranges(view(name), dim, ranges);
}

TensorDict read_safetensors(const std::string& path) {
  const SafetensorsFile file(path);
  TensorDict tensors;
  for (const auto& name : file.names()) tensors.set(name, file.read(name));
  return tensors;
}

}  // namespace gantry
