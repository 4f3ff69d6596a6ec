// A mapped file of tensors whose header was checked: a safetensors or torch.save file. Without LibTorch.
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
  // Throws InputError for a name that does not exist.
  const StoredTensor& at(const std::string& name) const;
  std::span<const unsigned char> bytes(const StoredTensor& tensor) const {
    return {file_.data() + header_.data_start + tensor.begin, tensor.end - tensor.begin};
  }
  // Returns a contiguous copy of the elements.
  std::vector<unsigned char> elements(const StoredTensor& tensor) const;

 private:
  std::string path_;
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace gantry
