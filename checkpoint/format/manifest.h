// The manifest of a checkpoint, as data and as text. See docs/design.md for the format.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "gantry/checkpoint/format/stored_type.h"
#include "gantry/core/slice.h"

namespace gantry {

inline constexpr int kManifestVersion = 3;
inline constexpr int kOldestManifestVersion = 2;  // its slices state one dim and the ranges in it
inline constexpr const char* kManifestName = "manifest.json";

// A part of a global tensor, after all shards were applied in order. Without shards: the full tensor.
struct ManifestSlice {
  std::string file;
  std::vector<AppliedShard> shards;
};

struct ManifestTensor {
  std::string kind, name;
  const StoredType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::vector<ManifestSlice> slices;

  std::string key() const { return kind.empty() ? name : kind + "/" + name; }  // its name in the files
  Slice slice_of(const ManifestSlice& slice) const { return apply_shards(shape, slice.shards); }
  std::uint64_t bytes() const { return stored_bytes(*type, shape).value_or(0); }
};

struct ManifestFile {
  std::string hash;  // XXH3-128, 32 hexadecimal digits
  std::uint64_t size = 0;
};

struct Manifest {
  std::int64_t step = 0;
  std::string policy;
  nlohmann::json model_config;
  std::string config_text;  // the resolved configuration
  std::map<std::string, int> layout;
  int threads_per_rank = 1;
  nlohmann::json numbers;   // numbers of the state: optimizer steps, loss scale
  nlohmann::json progress;  // learning rate, data cursor, random state
  nlohmann::json user;      // values of the caller
  std::map<std::string, ManifestFile> files;
  std::map<std::string, ManifestFile> companions;  // by path in the subdirectory model_files (companion_files.h)
  std::map<std::string, ManifestTensor> tensors;   // by key
};

nlohmann::json to_json(const std::vector<AppliedShard>& shards);
nlohmann::json to_json(const ManifestTensor& tensor);
// Checks that counts are not negative, the type is known, shards exist and file names are safe. Throws
// CheckpointError.
ManifestTensor tensor_from_json(const nlohmann::json& value);

// The text of manifest.json. Its first line contains the hash of the rest.
std::string manifest_text(const Manifest& manifest);
// Throws CheckpointError, naming `path`, if the text does not match its hash, has an unsupported version, or
// lists slices that do not tile their tensors exactly.
Manifest parse_manifest(std::string_view text, const std::string& path);
Manifest read_manifest(const std::string& folder);
// Returns the text only, of at most 256 MiB. Throws CheckpointError.
std::string read_manifest_text(const std::string& folder);
// The hash in the first line of the folder's manifest, or "". Reads nothing else.
std::string stated_manifest_hash(const std::string& folder);
// The same for a text.
std::string stated_hash(std::string_view text);

}  // namespace gantry
