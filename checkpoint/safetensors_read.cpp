#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::uint64_t kLengthBytes = 8;

const std::map<std::string, torch::ScalarType>& dtypes() {
  static const std::map<std::string, torch::ScalarType> kTypes = {{"F64", torch::kFloat64},
                                                                  {"F32", torch::kFloat32},
                                                                  {"F16", torch::kFloat16},
                                                                  {"BF16", torch::kBFloat16},
                                                                  {"I64", torch::kInt64},
                                                                  {"I32", torch::kInt32},
                                                                  {"I16", torch::kInt16},
                                                                  {"I8", torch::kInt8},
                                                                  {"U8", torch::kUInt8},
                                                                  {"BOOL", torch::kBool},
                                                                  {"F8_E4M3", torch::kFloat8_e4m3fn},
                                                                  {"F8_E5M2", torch::kFloat8_e5m2}};
  return kTypes;
}

// What a file that is no safetensors file looks like.
std::string looks_like(const unsigned char* data, std::uint64_t size) {
  const std::string start(reinterpret_cast<const char*>(data), std::min<std::uint64_t>(size, 64));
  if (start.starts_with("version https://git-lfs"))
    return "a Git LFS pointer; fetch the file itself with `git lfs pull`";
  if (start.starts_with("PK")) return "a zip archive, as torch.save writes; convert it to safetensors";
  if (start.starts_with("\x80")) return "a pickle; convert it to safetensors";
  if (start.starts_with("<!DOCTYPE") || start.starts_with("<html") || start.starts_with("<HTML"))
    return "an HTML page; download the file itself";
  return "";
}

// Refuses keys that are there twice, which the DOM parser would silently merge.
bool has_duplicate_keys(const char* begin, const char* end) {
  std::vector<std::set<std::string>> seen;
  bool duplicate = false;
  const auto callback = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::object_start) seen.emplace_back();
    if (event == nlohmann::json::parse_event_t::object_end) seen.pop_back();
    if (event == nlohmann::json::parse_event_t::key)
      duplicate = duplicate || !seen.back().insert(parsed.get<std::string>()).second;
    return true;
  };
  const auto ignored = nlohmann::json::parse(begin, end, callback, /*allow_exceptions=*/false);
  return duplicate;
}

bool is_count(const nlohmann::json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() <= (std::uint64_t{1} << 62);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw InputError({path, std::strerror(errno), "a safetensors file", "check the path"});
  struct stat status {};
  const bool known = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  size_ = known ? static_cast<std::uint64_t>(status.st_size) : 0;
  if (size_ > 0) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped != MAP_FAILED) data_ = static_cast<const unsigned char*>(mapped);
  }
  ::close(file);
  if (!data_) throw InputError({path, known ? "is empty" : "is no regular file", "a safetensors file", ""});
  try {
    parse();
  } catch (...) {
    ::munmap(const_cast<unsigned char*>(data_), size_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { ::munmap(const_cast<unsigned char*>(data_), size_); }

void SafetensorsFile::refuse(const std::string& what) const {
  const std::string likeness = looks_like(data_, size_);
  throw InputError({path_, what, "a sound safetensors file",
                    likeness.empty() ? "fetch or write it again" : "it looks like " + likeness});
}

void SafetensorsFile::parse() {
  if (size_ < kLengthBytes) refuse(fmt::format("has {} bytes, less than the 8 of a header's length", size_));
  std::uint64_t header = 0;
  std::memcpy(&header, data_, kLengthBytes);
  if (header > kMostHeaderBytes || header > size_ - kLengthBytes)
    refuse(fmt::format("says its header has {} bytes, and the file has {}", header, size_));
  const char* text = reinterpret_cast<const char*>(data_) + kLengthBytes;
  if (header == 0 || *text != '{') refuse("its header does not begin with '{'");
  const auto parsed = nlohmann::json::parse(text, text + header, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) refuse("its header is no JSON object");
  if (has_duplicate_keys(text, text + header)) refuse("its header has a key twice");
  data_start_ = kLengthBytes + header;

  const std::uint64_t bytes = size_ - data_start_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;
  for (const auto& [name, value] : parsed.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) refuse("__metadata__ is no object");
      for (const auto& [key, text_value] : value.items()) {
        if (!text_value.is_string()) refuse("__metadata__ has a value that is no string: " + key);
        metadata_[key] = text_value.get<std::string>();
      }
      continue;
    }
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets"))
      refuse("tensor '" + name + "' does not have dtype, shape and data_offsets alone");
    const auto& dtype = value["dtype"];
    const auto type = dtype.is_string() ? dtypes().find(dtype.get<std::string>()) : dtypes().end();
    if (type == dtypes().end()) refuse("tensor '" + name + "' has the unknown dtype " + dtype.dump());
    const auto& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !is_count(offsets[0]) || !is_count(offsets[1]))
      refuse("tensor '" + name + "' has data_offsets that are not two counts");
    Entry entry{type->second, {}, offsets[0], offsets[1]};
    if (entry.begin > entry.end || entry.end > bytes)
      refuse(fmt::format("tensor '{}' lies at {} to {} of {} bytes", name, entry.begin, entry.end, bytes));
    if (!value["shape"].is_array()) refuse("tensor '" + name + "' has a shape that is no list");
    std::uint64_t needed = c10::elementSize(entry.dtype);
    for (const auto& extent : value["shape"]) {
      if (!is_count(extent) || __builtin_mul_overflow(needed, extent.get<std::uint64_t>(), &needed))
        refuse("tensor '" + name + "' has a shape whose size overflows");
      entry.shape.push_back(extent.get<std::int64_t>());
    }
    if (needed != entry.end - entry.begin)
      refuse(fmt::format("tensor '{}' needs {} bytes for [{}] and has {}", name, needed, fmt::join(entry.shape, ", "),
                         entry.end - entry.begin));
    parts.emplace_back(entry.begin, entry.end);
    entries_.emplace(name, std::move(entry));
  }
  std::sort(parts.begin(), parts.end());
  std::uint64_t covered = 0;
  for (const auto& [begin, end] : parts) {
    if (begin != covered) refuse(fmt::format("its tensors leave a hole or overlap at byte {}", covered));
    covered = end;
  }
  if (covered != bytes) refuse(fmt::format("its tensors cover {} of {} bytes", covered, bytes));
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const SafetensorsFile::Entry& SafetensorsFile::entry(const std::string& name) const {
  if (const auto found = entries_.find(name); found != entries_.end()) return found->second;
  throw InputError({path_, "has no tensor '" + name + "'", "", ""});
}

torch::Tensor SafetensorsFile::view(const std::string& name) const {
  const Entry& found = entry(name);
  auto* start = const_cast<unsigned char*>(data_ + data_start_ + found.begin);
  return torch::from_blob(start, found.shape, torch::TensorOptions(found.dtype));
}

torch::Tensor SafetensorsFile::read(const std::string& name) const { return view(name).clone(); }

torch::Tensor SafetensorsFile::read_slice(const std::string& name, int dim, const std::vector<Range>& ranges) const {
  std::vector<torch::Tensor> parts;
  for (const Range& range : ranges) parts.push_back(view(name).narrow(dim, range.begin, range.size()));
  return torch::cat(parts, dim);
}

TensorDict read_safetensors(const std::string& path) {
  const SafetensorsFile file(path);
  TensorDict tensors;
  for (const auto& name : file.names()) tensors.set(name, file.read(name));
  return tensors;
}

}  // namespace gantry
