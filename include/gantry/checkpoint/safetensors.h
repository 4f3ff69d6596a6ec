// The safetensors format. Reading is strict: every size is checked before memory is allocated or data is read.
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

// A safetensors file that is mapped into memory and read tensor by tensor. A file that torch.save has written (zip
// format, a mapping of names to tensors) is read too; nothing in it is executed. Throws InputError if the file is not
// valid; the error says what the file seems to be (a Git LFS pointer, an HTML page, ...).
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();

  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;
  const std::vector<std::int64_t>& shape(const std::string& name) const;
  // Throws InputError for a type that LibTorch does not support.
  torch::ScalarType dtype(const std::string& name) const;
  // Returns a copy of the tensor, or of ranges along `dim`, concatenated.
  torch::Tensor read(const std::string& name) const;
  torch::Tensor read_slice(const std::string& name, int dim, const std::vector<Range>& ranges) const;
  // Returns a view of the mapped bytes, or a copy of a tensor whose elements are not contiguous. Do not write to it,
  // and do not use it after this object was destroyed.
  torch::Tensor view(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const;
  const StoredFile& stored() const { return *file_; }

 private:
  std::unique_ptr<const StoredFile> file_;
};

// Reads all tensors of a file into memory. Throws InputError like SafetensorsFile.
TensorDict read_safetensors(const std::string& path);

// Returns LibTorch's type for a stored type. Throws InputError with `where` for an unsupported one.
torch::ScalarType scalar_type_of(const StoredType& type, const std::string& where);
// Throws UsageError for a type that the format does not support.
const StoredType& stored_type_of(torch::ScalarType type);

// Writes the header and the tensors in their order to `file`, which computes the hash.
void write_tensors(HashedFile& file, const TensorDict& tensors, const std::map<std::string, std::string>& metadata);

// Writes to a temporary file, syncs and renames it. Throws ResourceError if it cannot be written.
void write_safetensors(const std::string& path, const TensorDict& tensors,
                       const std::map<std::string, std::string>& metadata = {}, FileSystem& files = system_files());

}  // namespace gantry
