// The teacher's largest log-probabilities of the samples of a data set, as a file.
//
// The file begins with 4096 bytes of JSON, padded with spaces, which state its form. Then each sample has the numbers
// [tokens, 2 k] of packed() (plugins/top_tokens.h), and their XXH3-128 in 32 hexadecimal digits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gantry/checkpoint/format/files.h"
#include "gantry/core/mapped_file.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

struct TeacherCacheForm {
  std::string key;  // a digest of all that the numbers depend on
  std::int64_t samples = 0, tokens = 0, k = 0;
  bool is_double = false;  // float64 log-probabilities in place of float32

  torch::ScalarType type() const;  // type of the numbers
  bool operator==(const TeacherCacheForm&) const = default;
};

// The file of this form in a directory, whether it exists or not.
std::string teacher_cache_path(const std::string& folder, const TeacherCacheForm& form);

// Writes a file next to its destination, where it is complete or absent.
class TeacherCacheWriter {
 public:
  // Creates the directory. Throws ResourceError if another process writes into it, or if it cannot be written.
  TeacherCacheWriter(const std::string& folder, const TeacherCacheForm& form, FileSystem& files = system_files());
  ~TeacherCacheWriter();
  TeacherCacheWriter(const TeacherCacheWriter&) = delete;
  TeacherCacheWriter& operator=(const TeacherCacheWriter&) = delete;

  // Appends the numbers of the next samples: [samples, tokens, 2 k] on the CPU.
  void add(const torch::Tensor& numbers);
  // Moves the file to its destination. All samples must have been added.
  void commit();

 private:
  TeacherCacheForm form_;
  int folder_;  // open while it is locked
  std::unique_ptr<DurableFile> file_;
  std::int64_t added_ = 0;
};

class TeacherCache {
 public:
  // Throws InputError if the file is not a complete one of this form.
  TeacherCache(const std::string& folder, const TeacherCacheForm& form);

  // The numbers of a sample, as TeacherCacheWriter has written them, into `numbers` [tokens, 2 k] on the CPU. Throws
  // InputError if they are damaged.
  void read(std::int64_t sample, torch::Tensor& numbers) const;

 private:
  TeacherCacheForm form_;
  MappedFile file_;
};

}  // namespace gantry
