#include "gantry/checkpoint/format/manifest.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/format/damage.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/format/tiling.h"
#include "gantry/core/error.h"
#include "gantry/core/io/strict_json.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr std::string_view kHashKey = "{\"hash\": \"";
constexpr std::size_t kHashDigits = 32;
constexpr std::uint64_t kMostManifestBytes = std::uint64_t{1} << 28;

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& expected = "") {
  throw CheckpointError({where, what, expected, kDamaged});
}

const json& member(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) refuse("manifest", fmt::format("the key '{}' is missing", key));
  return object[key];
}

std::string text_in(const json& object, const char* key) {
  const json& value = member(object, key);
  if (!value.is_string()) refuse("manifest", fmt::format("'{}' is not a string", key));
  return value.get<std::string>();
}

std::int64_t number_in(const json& object, const char* key) {
  const auto count = count_in(member(object, key));
  if (!count) refuse("manifest", fmt::format("'{}' is not a count", key));
  return *count;
}

const json& list_in(const json& object, const char* key) {
  const json& value = member(object, key);
  if (!value.is_array()) refuse("manifest", fmt::format("'{}' is not a list", key));
  return value;
}

const json& object_in(const json& object, const char* key) {
  const json& value = member(object, key);
  if (!value.is_object()) refuse("manifest", fmt::format("'{}' is not an object", key));
  return value;
}

std::string safe_file_name(const std::string& name) {
  if (!is_plain_file_name(name)) refuse("manifest", "it lists the file '" + name + "'", "a file of its directory");
  return name;
}

Range range_from_json(const json& value, const std::string& key) {
  const bool pair = value.is_array() && value.size() == 2;
  const auto begin = pair ? count_in(value[0]) : std::nullopt, end = pair ? count_in(value[1]) : std::nullopt;
  if (!begin || !end) refuse(key, "a range is " + value.dump(), "two counts");
  return {*begin, *end};
}

AppliedShard shard_from_json(const json& value, const std::string& key) {
  AppliedShard shard;
  const auto dim = count_in(member(value, "dim"));
  if (!dim || *dim > std::numeric_limits<int>::max())
    refuse(key, "a slice is along dim " + value["dim"].dump(), "a dimension of the tensor");
  shard.dim = static_cast<int>(*dim);
  if (value.contains("row")) {
    const auto row = count_in(value["row"]);
    if (!row || *row < 1 || shard.dim != 0)
      refuse(key, "a slice is in rows of " + value["row"].dump(), "a count from 1, along dim 0");
    shard.row = *row;
  }
  for (const auto& range : list_in(value, "ranges")) shard.ranges.push_back(range_from_json(range, key));
  return shard;
}

ManifestSlice slice_from_json(const json& value, const ManifestTensor& tensor) {
  ManifestSlice slice{safe_file_name(text_in(value, "file")), {}};
  if (value.contains("cuts")) {
    for (const auto& shard : list_in(value, "cuts")) slice.shards.push_back(shard_from_json(shard, tensor.key()));
    // Format version 2.
  } else if (const json& dim = member(value, "dim"); !(dim.is_number_integer() && dim == -1)) {
    slice.shards.push_back(shard_from_json(value, tensor.key()));
  }
  try {
    (void)tensor.slice_of(slice);
  } catch (const ConfigError& error) {
    refuse(tensor.key(), error.what());
  }
  return slice;
}

// The first line contains the hash of the rest.
void check_hash(std::string_view text, const std::string& path) {
  const std::size_t start = kHashKey.size() + kHashDigits + 2;
  if (!text.starts_with(kHashKey) || text.size() < start || text.substr(start - 2, 2) != "\",") {
    const std::string like = likeness(text.substr(0, 64));
    throw CheckpointError({path, "the file does not begin with its hash", "a manifest of format version 2",
                           like.empty() ? kDamaged : "it looks like " + like});
  }
  if (hash_of(text.substr(start)) != text.substr(kHashKey.size(), kHashDigits))
    refuse(path, "the hash of the file is not the one in its first line");
}

ManifestFile file_from_json(const std::string& name, const json& value) {
  ManifestFile file{text_in(value, "hash"), static_cast<std::uint64_t>(number_in(value, "size"))};
  if (file.hash.size() != kHashDigits) refuse("manifest", "the hash of " + name + " has the wrong length");
  return file;
}

void read_files(const json& files, Manifest& manifest) {
  for (const auto& [name, value] : files.items())
    manifest.files.emplace(safe_file_name(name), file_from_json(name, value));
}

// The names of companions are paths: "tokenizer.json", "additional_chat_templates/rag.jinja". Older
// manifests have none.
void read_companions(const json& all, Manifest& manifest) {
  if (!all.contains("companions")) return;
  for (const auto& [path, value] : object_in(all, "companions").items()) {
    const std::size_t slash = path.find('/');
    if (slash != std::string::npos) safe_file_name(path.substr(0, slash));
    safe_file_name(slash == std::string::npos ? path : path.substr(slash + 1));
    manifest.companions.emplace(path, file_from_json(path, value));
  }
}

json to_json(const std::map<std::string, ManifestFile>& files) {
  json all = json::object();
  for (const auto& [name, file] : files) all[name] = {{"hash", file.hash}, {"size", file.size}};
  return all;
}

// Reads everything except the tensors.
Manifest head_from_json(const json& all, const std::string& path) {
  const json& version = member(all, "format_version");
  if (const auto number = count_in(version); !number || *number < kOldestManifestVersion || *number > kManifestVersion)
    throw CheckpointError({path, "the file has the format version " + version.dump(),
                           fmt::format("{} to {}", kOldestManifestVersion, kManifestVersion),
                           "read it with the version of Gantry that wrote it"});
  Manifest manifest{
      .step = number_in(all, "step"),
      .policy = text_in(all, "policy"),
      .model_config = object_in(all, "model_config"),
      .config_text = text_in(all, "config"),
      .layout = {},
      .threads_per_rank = static_cast<int>(std::min<std::int64_t>(number_in(all, "threads_per_rank"), 1 << 20)),
      .numbers = object_in(all, "numbers"),
      .progress = object_in(all, "progress"),
      .user = object_in(all, "user"),
      .files = {},
      .companions = {},
      .tensors = {}};
  const json& layout = object_in(all, "layout");
  for (const auto& [axis, size] : layout.items())
    manifest.layout[axis] = static_cast<int>(std::min<std::int64_t>(number_in(layout, axis.c_str()), 1 << 30));
  read_files(object_in(all, "files"), manifest);
  read_companions(all, manifest);
  list_in(all, "tensors");
  return manifest;
}

// The list of tensors is nearly all of a manifest. Each tensor is converted and dropped as soon as it is
// parsed, so that a large manifest is never in memory as a JSON document. Errors are thrown only after the
// head was read, because an error about the version explains more.
class TensorList {
 public:
  bool sees(int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1) inside_ = parsed == "tensors";
    const bool is_scalar = event == json::parse_event_t::value;
    if (!inside_ || depth != 2 ||
        !(is_scalar || event == json::parse_event_t::object_end || event == json::parse_event_t::array_end))
      return true;
    take(parsed);
    return false;
  }
  std::map<std::string, ManifestTensor> finish() {
    if (fault_) std::rethrow_exception(fault_);
    return std::move(tensors_);
  }

 private:
  void take(const json& value) {
    if (fault_) return;
    try {
      ManifestTensor tensor = tensor_from_json(value);
      check_tiling(tensor);
      const std::string key = tensor.key();
      if (!tensors_.emplace(key, std::move(tensor)).second) refuse(key, "the tensor is listed twice");
    } catch (...) {
      fault_ = std::current_exception();
    }
  }

  bool inside_ = false;
  std::map<std::string, ManifestTensor> tensors_;
  std::exception_ptr fault_;
};

void check_files_are_listed(const Manifest& manifest) {
  for (const auto& [key, tensor] : manifest.tensors)
    for (const auto& slice : tensor.slices)
      if (!manifest.files.contains(slice.file))
        refuse(key, "the tensor is stored in '" + slice.file + "', which has no hash");
}

}  // namespace

json to_json(const std::vector<AppliedShard>& shards) {
  json all = json::array();
  for (const AppliedShard& shard : shards) {
    json ranges = json::array();
    for (const Range& range : shard.ranges) ranges.push_back({range.begin, range.end});
    all.push_back({{"dim", shard.dim}, {"ranges", ranges}});
    if (shard.row > 0) all.back()["row"] = shard.row;
  }
  return all;
}

json to_json(const ManifestTensor& tensor) {
  json slices = json::array();
  for (const auto& slice : tensor.slices) slices.push_back({{"file", slice.file}, {"cuts", to_json(slice.shards)}});
  return {{"kind", tensor.kind},
          {"name", tensor.name},
          {"dtype", tensor.type->readable},
          {"shape", tensor.shape},
          {"slices", slices}};
}

ManifestTensor tensor_from_json(const json& value) {
  const std::string dtype = text_in(value, "dtype");
  ManifestTensor tensor{text_in(value, "kind"), text_in(value, "name"), find_readable_type(dtype), {}, {}};
  if (!tensor.type) refuse(tensor.key(), "the tensor has the unknown dtype '" + dtype + "'");
  for (const auto& extent : list_in(value, "shape")) {
    const auto count = count_in(extent);
    if (!count) refuse(tensor.key(), "the tensor has the shape " + value["shape"].dump(), "a list of counts");
    tensor.shape.push_back(*count);
  }
  if (!stored_bytes(*tensor.type, tensor.shape)) refuse(tensor.key(), "the tensor has a shape whose size overflows");
  for (const auto& slice : list_in(value, "slices")) tensor.slices.push_back(slice_from_json(slice, tensor));
  return tensor;
}

std::string manifest_text(const Manifest& manifest) {
  json tensors = json::array();
  for (const auto& [key, tensor] : manifest.tensors) tensors.push_back(to_json(tensor));
  const auto object = [](const json& value) { return value.is_object() ? value : json::object(); };
  const json all = {{"format_version", kManifestVersion},
                    {"step", manifest.step},
                    {"policy", manifest.policy},
                    {"model_config", object(manifest.model_config)},
                    {"config", manifest.config_text},
                    {"layout", manifest.layout.empty() ? json::object() : json(manifest.layout)},
                    {"threads_per_rank", manifest.threads_per_rank},
                    {"numbers", object(manifest.numbers)},
                    {"progress", object(manifest.progress)},
                    {"user", object(manifest.user)},
                    {"files", to_json(manifest.files)},
                    {"companions", to_json(manifest.companions)},
                    {"tensors", tensors}};
  const std::string body = all.dump(1).substr(1);  // after its "{", which the first line has
  return std::string(kHashKey) + hash_of(body) + "\"," + body;
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  check_hash(text, path);
  if (const std::string fault = json_fault(text); !fault.empty()) refuse(path, fault);
  TensorList tensors;
  const json head = json::parse(text.begin(), text.end(), [&](int depth, json::parse_event_t event, json& parsed) {
    return tensors.sees(depth, event, parsed);
  });
  Manifest manifest = head_from_json(head, path);
  manifest.tensors = tensors.finish();
  check_files_are_listed(manifest);
  return manifest;
}

std::string read_manifest_text(const std::string& folder) {
  try {
    return read_text(folder + "/" + kManifestName, kMostManifestBytes);
  } catch (const InputError& error) {
    throw CheckpointError(error.what());
  }
}

Manifest read_manifest(const std::string& folder) {
  return parse_manifest(read_manifest_text(folder), folder + "/" + kManifestName);
}

std::string stated_hash(std::string_view text) {
  return text.starts_with(kHashKey) ? std::string(text.substr(kHashKey.size(), kHashDigits)) : "";
}

std::string stated_manifest_hash(const std::string& folder) {
  std::string start(kHashKey.size() + kHashDigits, '\0');
  std::ifstream file(folder + "/" + kManifestName, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(file.gcount()));
  return stated_hash(start);
}

}  // namespace gantry
