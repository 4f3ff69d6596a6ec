// The weight files of a Hugging Face directory: one file, or shards with an index, in the safetensors format
// or as torch.save writes them. Without LibTorch.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kModelIndex = "model.safetensors.index.json";
inline constexpr const char* kPickledFile = "pytorch_model.bin";
inline constexpr const char* kPickledIndex = "pytorch_model.bin.index.json";

// Reads a file that consists of one JSON object. Throws InputError if the file is missing or has other
// contents; the error describes their likely form.
nlohmann::json read_json_object(const std::string& path);

// Sets the type of the weights ("bfloat16") in config.json under both keys: `torch_dtype` (transformers 4)
// and `dtype`.
void set_weight_type(nlohmann::json& config, const std::string& type);

struct ModelFiles {
  std::vector<std::string> paths;                   // each file once
  std::map<std::string, std::string> file_of_name;  // from the index; empty for a single file
};

// The files that an index lists, as paths in the directory of `path`. `text`: the contents of `path`. Does
// not check whether the files exist. Throws InputError if the index is malformed or lists files outside of
// the directory.
ModelFiles parse_model_index(std::string_view text, const std::string& path);

// True if the directory has weights in a form that find_model_files() reads.
bool has_model_files(const std::string& directory);

// A file of the directory into which another program has pickled weights (pytorch_model_tp_0_pp_0.bin, ...),
// or "".
std::string find_pickle(const std::string& directory);

// Prefers safetensors. Throws InputError if the directory has no weights, if the index is malformed or lists
// files outside of the directory, or if shards are missing; the error lists all missing ones.
ModelFiles find_model_files(const std::string& directory);

// Throws InputError if the file at `path`, one of `files`, lacks a tensor that the index lists for it. `contains`:
// whether the file has a tensor of this name.
void check_index(const ModelFiles& files, const std::string& path,
                 const std::function<bool(const std::string& name)>& contains);

// Throws UsageError if `output` is one of `sources`, the existing directories that a command reads and would
// overwrite. Sources may be "".
void require_other_directory(const std::string& output, const std::vector<std::string>& sources);

}  // namespace gantry
