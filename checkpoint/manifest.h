// The manifest of a checkpoint, as data and as JSON.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gantry/core/placement.h"

namespace gantry {

inline constexpr int kManifestVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";

// A part of a global tensor: `ranges` along `dim`, one after the other; the whole tensor when dim is -1.
struct ManifestSlice {
  std::string file;
  int dim = -1;
  std::vector<Range> ranges;
};

struct ManifestTensor {
  std::string kind, name, dtype;
  std::vector<std::int64_t> shape;
  std::vector<ManifestSlice> slices;
  std::string key() const { return kind + "/" + name; }  // its name in the files
};

struct Manifest {
  nlohmann::json header;  // format version, step, policy, model_config, config, numbers, layout, threads_per_rank
  std::map<std::string, std::string> hashes;      // by file
  std::map<std::string, ManifestTensor> tensors;  // by key
};

nlohmann::json to_json(const ManifestTensor& tensor);
nlohmann::json to_json(const Manifest& manifest);
ManifestTensor tensor_from_json(const nlohmann::json& value);

// CheckpointError for a manifest that is missing, damaged, of another version, or whose slices do not tile their
// tensors.
Manifest read_manifest(const std::string& folder);

}  // namespace gantry
