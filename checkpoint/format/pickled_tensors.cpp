#include "gantry/checkpoint/format/pickled_tensors.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "gantry/checkpoint/format/pickle.h"
#include "gantry/checkpoint/format/zip_directory.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr std::string_view kOldMagic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::string_view kPickle = "/data.pkl";

class TorchFile {
 public:
  TorchFile(std::string_view file, const std::string& path)
      : file_(file), path_(path), entries_(read_zip_directory(file, path)) {}

  SafetensorsHeader header() const {
    const std::string root = root_folder();
    if (const auto order = entries_.find(root + "/byteorder");
        order != entries_.end() && text(order->second) != "little")
      refuse("its numbers are in big-endian order");
    const Pickle pickle = parse_pickle(text(entries_.at(root + std::string(kPickle))), path_);
    const auto* names = pickle.result->as<PickleDict>();
    if (!names) refuse("its pickle is not a mapping");
    SafetensorsHeader header;
    for (std::size_t i = 0; i < names->items.size(); i += 2) {
      const auto* name = names->items[i]->as<std::string>();
      if (!name || !is_line(*name)) refuse("its pickle has a key that is not a name");
      const auto* tensor = names->items[i + 1]->as<PickleTensor>();
      if (!tensor) refuse(fmt::format("its entry '{}' is not a tensor", *name));
      header.tensors.insert_or_assign(*name, placed(*name, *tensor, root));
    }
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError({path_, what, "a mapping of names to tensors",
                      "save the model's state dict alone, or convert it to safetensors"});
  }

  static bool is_line(const std::string& name) {
    return !name.empty() && name.size() < 1000 &&
           std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 32 || c == 127; });
  }

  std::string_view text(const ZipEntry& entry) const { return file_.substr(entry.begin, entry.bytes); }

  // The prefix of all names of the file, such as "archive".
  std::string root_folder() const {
    for (const auto& [name, entry] : entries_)
      if (name.ends_with(kPickle) && name.find('/') == name.size() - kPickle.size())
        return name.substr(0, name.size() - kPickle.size());
    refuse("the zip file has no data.pkl");
  }

  // Sets `extent` to the largest offset of an element from the start of the tensor. Returns false if it
  // overflows, or if a size or stride is negative.
  static bool has_extent(const PickleTensor& tensor, std::int64_t& extent) {
    extent = 0;
    for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim) {
      std::int64_t step = 0;
      if (tensor.shape[dim] < 0 || tensor.strides[dim] < 0) return false;
      if (tensor.shape[dim] == 0) continue;
      if (__builtin_mul_overflow(tensor.shape[dim] - 1, tensor.strides[dim], &step) ||
          __builtin_add_overflow(extent, step, &extent))
        return false;
    }
    return true;
  }

  static bool is_contiguous(const PickleTensor& tensor) {
    std::int64_t step = 1;
    for (std::size_t dim = tensor.shape.size(); dim > 0; --dim) {
      if (tensor.shape[dim - 1] != 1 && tensor.strides[dim - 1] != step) return false;
      step *= tensor.shape[dim - 1];
    }
    return true;
  }

  StoredTensor placed(const std::string& name, const PickleTensor& tensor, const std::string& root) const {
    const auto storage = entries_.find(root + "/data/" + tensor.storage->key);
    if (storage == entries_.end()) refuse(fmt::format("the storage of '{}' is missing", name));
    const auto width = static_cast<std::uint64_t>(tensor.type->bits) / 8;
    const auto elements = static_cast<std::int64_t>(storage->second.bytes / width);
    if (tensor.storage->type && tensor.storage->elements > elements)
      refuse(fmt::format("the storage of '{}' has {} elements, but {} are stored", name, tensor.storage->elements,
                         elements));
    const auto bytes = stored_bytes(*tensor.type, tensor.shape);
    std::int64_t extent = 0;
    if (!bytes || tensor.shape.size() != tensor.strides.size() || !has_extent(tensor, extent))
      refuse(fmt::format("'{}' has the shape [{}] with strides [{}]", name, fmt::join(tensor.shape, ", "),
                         fmt::join(tensor.strides, ", ")));
    const bool is_empty = *bytes == 0;
    if (tensor.offset < 0 || tensor.offset > elements || (!is_empty && extent >= elements - tensor.offset) ||
        *bytes > file_.size())
      refuse(fmt::format("'{}' leaves its storage of {} elements", name, elements));
    StoredTensor made{.type = tensor.type, .shape = tensor.shape};
    made.begin = storage->second.begin + static_cast<std::uint64_t>(tensor.offset) * width;
    made.end = made.begin + (is_empty ? 0 : static_cast<std::uint64_t>(extent + 1) * width);
    if (!is_empty && !is_contiguous(tensor)) made.strides = tensor.strides;
    return made;
  }

  std::string_view file_;
  const std::string& path_;
  std::map<std::string, ZipEntry> entries_;
};

}  // namespace

bool is_torch_file(std::string_view file) { return is_zip(file) || file.starts_with(kOldMagic); }

SafetensorsHeader parse_pickled_tensors(std::string_view file, const std::string& path) {
  if (file.starts_with(kOldMagic))
    throw InputError({path, "the file is in the format of PyTorch before 1.6, which is not supported",
                      "a file that torch.save of PyTorch 1.6 or later has written",
                      "convert it in Python: torch.save(torch.load(path, weights_only=True), path)"});
  return TorchFile(file, path).header();
}

}  // namespace gantry
