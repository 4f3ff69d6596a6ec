// A file of tensors, mapped, with its header checked: safetensors, or torch.save's. Without LibTorch.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/safetensors_header.h"
#include "gantry/core/mapped_file.h"

namespace gantry {

class StoredFile {
 public:
  explicit StoredFile(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  std::uint64_t size() const { return file_.size(); }
  // InputError for a name that is not there.
  const StoredTensor& at(const std::string& name) const;
  std::span<const unsigned char> bytes(const StoredTensor& tensor) const {
    return {file_.data() + header_.data_start + tensor.begin, tensor.end - tensor.begin};
  }
  // A copy of the elements, one after the other.
  std::vector<unsigned char> elements(const StoredTensor& tensor) const;

 private:
  std::string path_;
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace gantry
