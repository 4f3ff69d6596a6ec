// Models as Hugging Face stores them: config.json beside model.safetensors, whole or in shards with an index.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gantry/models/model_family.h"
#include "gantry/tensors/state_source.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

class CheckpointFiles;
class FileSystem;
struct ManifestTensor;

// config.json. InputError if it is missing or no JSON object.
nlohmann::json read_model_config(const std::string& directory);

// Fills every held tensor with this rank's part of the file's tensor, turned and converted as needed. `keys`: the
// model's own config. `coordinates`: this rank's, by axis. InputError that lists missing and unexpected names, or names
// both shapes where they differ, or whole numbers where a weight is real. Returns the names of a new head's tensors,
// which the file lacks: they keep their values. `loaded` is called with the bytes that each tensor took.
std::vector<std::string> load_hugging_face(const std::string& directory, const models::ModelFamily& family,
                                           const nlohmann::json& keys, const std::vector<HeldTensor>& held,
                                           const Coordinates& coordinates,
                                           const std::function<void(std::uint64_t)>& loaded = {});

// Those whole tensors that there are, under Hugging Face's names and in their orientation.
TensorDict to_hugging_face(const std::vector<models::TensorName>& names, const TensorDict& tensors);

// A tensor to be written, read when its turn comes.
struct ExportTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  torch::ScalarType type;
  std::function<torch::Tensor()> read;
};

struct ExportOptions {
  std::optional<torch::ScalarType> type;                                // of floating tensors; unset: as they are
  std::uint64_t most_shard_bytes = 5'000'000'000;                       // a larger model is written in shards
  std::function<void(std::uint64_t done, std::uint64_t all)> progress;  // in bytes
  FileSystem* files = nullptr;                                          // not owned; null: the system's
};

// Writes config.json and model.safetensors, or shards and their index; makes the directory. One tensor at a time is in
// memory. What the directory has of an earlier model stands until the new one is whole on the disk, and readers never
// find files of both (format/staged_files.h). UsageError where the directory has a model in the other of the two
// forms, or another job writes there; ResourceError.
void save_hugging_face(const std::string& directory, const nlohmann::json& config,
                       const std::vector<ExportTensor>& tensors, const ExportOptions& options = {});

// The tensors of those names, `find` giving where each lies in `files`, which both must outlive the result.
std::vector<ExportTensor> hugging_face_tensors(const std::vector<models::TensorName>& names, CheckpointFiles& files,
                                               const std::function<const ManifestTensor&(const std::string&)>& find);

// The whole tensors of a checkpoint as a Hugging Face directory, hashes checked first. CheckpointError.
void export_checkpoint(const std::string& folder, const std::string& directory, const ExportOptions& options = {});

}  // namespace gantry
