// The safetensors format, read strictly: every size is checked before anything is allocated or read.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gantry/core/file_system.h"
#include "gantry/core/placement.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

class HashedFile;
class StoredFile;
struct StoredType;

// A file that is mapped into memory and read tensor by tensor. InputError for anything that is not a sound file, with
// what it looks like (a Git LFS pointer, a pickle, a page of HTML, ...).
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();

  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;
  const std::vector<std::int64_t>& shape(const std::string& name) const;
  // InputError for a type that the format has and LibTorch has not.
  torch::ScalarType dtype(const std::string& name) const;
  // A copy of the tensor, or of the ranges along `dim`, one after the other.
  torch::Tensor read(const std::string& name) const;
  torch::Tensor read_slice(const std::string& name, int dim, const std::vector<Range>& ranges) const;
  // The mapped bytes themselves: not to be written, and not to be used after this object.
  torch::Tensor view(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const;
  const StoredFile& stored() const { return *file_; }

 private:
  std::unique_ptr<const StoredFile> file_;
};

TensorDict read_safetensors(const std::string& path);

// LibTorch's type of a stored one; InputError naming `where` for one that it has not.
torch::ScalarType scalar_type_of(const StoredType& type, const std::string& where);
// UsageError for a type that the format has not.
const StoredType& stored_type_of(torch::ScalarType type);

// Writes header and tensors, in their order; `file` has the hash.
void write_tensors(HashedFile& file, const TensorDict& tensors, const std::map<std::string, std::string>& metadata);

// Written to a neighbour and renamed, synced first. ResourceError if it can't be.
void write_safetensors(const std::string& path, const TensorDict& tensors,
                       const std::map<std::string, std::string>& metadata = {}, FileSystem& files = system_files());

}  // namespace gantry
