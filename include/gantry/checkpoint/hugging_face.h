// Models in Hugging Face's format: config.json and model.safetensors, which may be split into shards with an index.
// PyTorch's pytorch_model.bin is read too.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gantry/core/row_encoding.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/state_source.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

class CheckpointFiles;
class FileSystem;
struct ManifestTensor;

// Reads config.json. Throws InputError if it is missing or not a JSON object.
nlohmann::json read_model_config(const std::string& directory);

// The parameters that the files lack, and the stored tensors that were not used.
struct LoadedModel {
  std::vector<std::string> fresh;        // parameters of a new head, which the files lack; they keep their values
  std::vector<std::string> passed_over;  // tensors of other heads and buffers, by their names in the files
};

// Loads this rank's part of the file's tensors into every held tensor, transposed, decoded and converted as needed.
// `keys`: the model's own configuration. `coordinates`: this rank's, by axis. `loaded` is called with the number of
// bytes of each tensor. `code`: the one of held weights that are records (core/row_encoding.h). Throws InputError with
// the missing and unexpected names, with both shapes if they differ, if a file has integers for a floating-point
// weight, or codes of another kind than `code`.
LoadedModel load_hugging_face(const std::string& directory, const models::ModelFamily& family,
                              const nlohmann::json& keys, const std::vector<HeldTensor>& held,
                              const Coordinates& coordinates, const std::function<void(std::uint64_t)>& loaded = {},
                              std::optional<WeightCode> code = std::nullopt);

// Converts the full tensors to Hugging Face's names and orientation. Names without a tensor are skipped.
TensorDict to_hugging_face(const std::vector<models::TensorName>& names, const TensorDict& tensors);

// A tensor to export, which is read only when it is written.
struct ExportTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  torch::ScalarType type;
  std::function<torch::Tensor()> read;
  bool keeps_type = false;  // ExportOptions::type does not apply
};

struct ExportOptions {
  std::optional<torch::ScalarType> type;  // data type of floating-point tensors; not set: unchanged
  // Linear layers are written in bitsandbytes' layout, those that model.quantize stores in 4 or 8 bits. Not set: as
  // they are.
  std::optional<WeightCode> quantize = {};
  bool average = false;                            // the averages of train.ema instead of the weights
  std::uint64_t most_shard_bytes = 5'000'000'000;  // maximum bytes of a file; a larger model is written in shards
  // Directory of a model whose files besides the weights (tokenizer, templates, generation_config.json, ...) are
  // copied. Empty: none. The functions that export a model or a checkpoint set it.
  std::string model_directory = {};
  std::function<void(std::uint64_t done, std::uint64_t all)> progress;  // called with progress in bytes
  FileSystem* files = nullptr;                                          // not owned; null: the system's
};

// Writes config.json and model.safetensors, or shards and their index, and copies the other files of
// options.model_directory; creates the directory. config.json gets both spellings of rotary keys
// (format/rope_spellings.h). Only one tensor at a time is in memory. An earlier model in the directory is kept until
// the new one is completely on disk, and readers never find a mixture of both (format/staged_files.h). Throws
// UsageError if the directory has a model in the other of the two forms, or if another job writes to it, and
// ResourceError.
void save_hugging_face(const std::string& directory, const nlohmann::json& config,
                       const std::vector<ExportTensor>& tensors, const ExportOptions& options = {});

// Returns export entries for the tensors with these names. `find` returns the position of each tensor in `files`. Both
// must outlive the result.
std::vector<ExportTensor> hugging_face_tensors(const std::vector<models::TensorName>& names, CheckpointFiles& files,
                                               const std::function<const ManifestTensor&(const std::string&)>& find);

// Returns export entries for the tensors of parts that the model of these keys does not load
// (ModelFamily::other_parts), with the names, types and values that they have in the files of `directory`. Throws
// InputError.
std::vector<ExportTensor> tensors_of_other_parts(const std::string& directory, const models::ModelFamily& family,
                                                 const nlohmann::json& config);

// Exports the full tensors of a checkpoint as a Hugging Face directory. Tensors of parts that the family does not load
// are copied from the directory of the run's model. Hashes are checked first. Throws CheckpointError, and InputError if
// the directory of such a model no longer exists.
void export_checkpoint(const std::string& folder, const std::string& directory, const ExportOptions& options = {});

}  // namespace gantry
