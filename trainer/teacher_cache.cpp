#include "gantry/trainer/teacher_cache.h"

#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/core/io/file_lock.h"
#include "gantry/core/io/paths.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

constexpr std::size_t kHeaderBytes = 4096, kDigestBytes = 32;
constexpr int kVersion = 1;

std::size_t bytes_of_numbers(const TeacherCacheForm& form) {
  return static_cast<std::size_t>(form.tokens * 2 * form.k) * c10::elementSize(form.type());
}

std::uint64_t bytes_of_file(const TeacherCacheForm& form) {
  return kHeaderBytes + static_cast<std::uint64_t>(form.samples) * (bytes_of_numbers(form) + kDigestBytes);
}

std::string header_of(const TeacherCacheForm& form) {
  std::string text = nlohmann::json{{"format", "gantry teacher cache"},
                                    {"version", kVersion},
                                    {"key", form.key},
                                    {"samples", form.samples},
                                    {"tokens", form.tokens},
                                    {"top_k", form.k},
                                    {"type", form.is_double ? "float64" : "float32"}}
                         .dump();
  text.resize(kHeaderBytes, ' ');
  return text;
}

std::string digest_of(const std::byte* numbers, const TeacherCacheForm& form) {
  return hash_of(std::string_view(reinterpret_cast<const char*>(numbers), bytes_of_numbers(form)));
}

[[noreturn]] void refuse_cache(const std::string& path, const std::string& what) {
  throw InputError({path, what, "a file of stored log-probabilities as the run that computed them has written it",
                    "delete the file; the next run computes the log-probabilities again"});
}

// Removes what runs have left that ended before their file was complete. The directory is locked.
void remove_incomplete(const std::string& folder, FileSystem& files) {
  for (const auto& path : entries_of(folder))
    if (path.extension() == ".partial" && path.stem().extension().string().starts_with(".top_"))
      remove_tree(path.string(), files);
}

// Opens and locks the directory of the files.
int locked_folder(const std::string& folder, FileSystem& files) {
  make_folders(folder, files);
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0)
    throw ResourceError({folder, std::string("the directory cannot be opened: ") + std::strerror(errno), "",
                         "choose a directory that can be read and written"});
  if (try_lock(file, folder)) return file;
  ::close(file);
  throw ResourceError({folder, "another run is storing log-probabilities in the directory", "one run at a time",
                       "start this run when the other one has begun its steps, or choose another directory"});
}

}  // namespace

torch::ScalarType TeacherCacheForm::type() const { return is_double ? torch::kInt64 : torch::kInt32; }

std::string teacher_cache_path(const std::string& folder, const TeacherCacheForm& form) {
  return fmt::format("{}/{}.top_{}", folder, form.key, form.k);
}

TeacherCacheWriter::TeacherCacheWriter(const std::string& folder, const TeacherCacheForm& form, FileSystem& files)
    : form_(form), folder_(locked_folder(folder, files)) {
  try {
    remove_incomplete(folder, files);
    file_ = std::make_unique<DurableFile>(teacher_cache_path(folder, form), files);
    file_->write(header_of(form).data(), kHeaderBytes);
  } catch (...) {
    ::close(folder_);
    throw;
  }
}

TeacherCacheWriter::~TeacherCacheWriter() {
  file_.reset();
  ::close(folder_);
}

void TeacherCacheWriter::add(const torch::Tensor& numbers) {
  const torch::Tensor all = numbers.contiguous();
  if (all.dim() != 3 || all.size(1) != form_.tokens || all.size(2) != 2 * form_.k || all.scalar_type() != form_.type())
    throw InternalError(
        {"stored log-probabilities",
         fmt::format("the numbers are {}, for {} tokens and top_k {}", describe(all), form_.tokens, form_.k), "", ""});
  const auto* next = static_cast<const std::byte*>(all.data_ptr());
  for (std::int64_t sample = 0; sample < all.size(0); ++sample, next += bytes_of_numbers(form_)) {
    file_->write(next, bytes_of_numbers(form_));
    file_->write(digest_of(next, form_).data(), kDigestBytes);
  }
  added_ += all.size(0);
}

void TeacherCacheWriter::commit() {
  if (added_ != form_.samples)
    throw InternalError(
        {"stored log-probabilities", fmt::format("{} of {} samples were added", added_, form_.samples), "", ""});
  file_->commit();
}

TeacherCache::TeacherCache(const std::string& folder, const TeacherCacheForm& form)
    : form_(form), file_(teacher_cache_path(folder, form)) {
  const std::string path = file_.path().string();
  if (file_.size() < kHeaderBytes || file_.text().substr(0, kHeaderBytes) != header_of(form))
    refuse_cache(path, "the file has another header than the one of this name");
  if (const std::uint64_t bytes = bytes_of_file(form); file_.size() != bytes)
    refuse_cache(path, fmt::format("the file has {} bytes, but {} samples have {}", file_.size(), form.samples, bytes));
}

void TeacherCache::read(std::int64_t sample, torch::Tensor& numbers) const {
  const std::size_t bytes = bytes_of_numbers(form_);
  const std::byte* stored =
      file_.bytes().data() + kHeaderBytes + static_cast<std::size_t>(sample) * (bytes + kDigestBytes);
  if (sample < 0 || sample >= form_.samples || numbers.numel() != form_.tokens * 2 * form_.k ||
      numbers.scalar_type() != form_.type() || !numbers.is_contiguous())
    throw InternalError({"stored log-probabilities",
                         fmt::format("sample {} of {} is read into {}", sample, form_.samples, describe(numbers)), "",
                         ""});
  const std::string digest = digest_of(stored, form_);
  if (std::memcmp(digest.data(), stored + bytes, kDigestBytes) != 0)
    refuse_cache(file_.path().string(), fmt::format("the numbers of sample {} are damaged", sample + 1));
  std::memcpy(numbers.data_ptr(), stored, bytes);
}

}  // namespace gantry
