// The safetensors format, read strictly: every size is checked before anything is allocated or read.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gantry/core/placement.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// A file that is mapped into memory and read tensor by tensor. InputError for anything that is not a sound file, with
// what it looks like (a Git LFS pointer, a pickle, a page of HTML, ...).
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return entries_.contains(name); }
  const std::vector<std::int64_t>& shape(const std::string& name) const { return entry(name).shape; }
  torch::ScalarType dtype(const std::string& name) const { return entry(name).dtype; }
  // A copy of the tensor, or of the ranges along `dim`, one after the other.
  torch::Tensor read(const std::string& name) const;
  torch::Tensor read_slice(const std::string& name, int dim, const std::vector<Range>& ranges) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  struct Entry {
    torch::ScalarType dtype;
    std::vector<std::int64_t> shape;
    std::uint64_t begin, end;
  };
  const Entry& entry(const std::string& name) const;
  torch::Tensor view(const std::string& name) const;
  void parse();
  [[noreturn]] void refuse(const std::string& what) const;

  std::string path_;
  const unsigned char* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t data_start_ = 0;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

TensorDict read_safetensors(const std::string& path);

// Written to a neighbour and renamed, synced first. ResourceError if it can't be.
void write_safetensors(const std::string& path, const TensorDict& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace gantry
