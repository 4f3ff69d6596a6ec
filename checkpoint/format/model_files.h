// The files of weights of a Hugging Face directory: one file, or shards with an index, in the safetensors format or as
// torch.save writes them. Without LibTorch.
#pragma once

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

// A file that is one JSON object. InputError where it is missing or is not, with what it looks like.
nlohmann::json read_json_object(const std::string& path);

// Makes config.json state the type of the weights ("bfloat16") under both keys: torch_dtype of transformers 4, and
// dtype.
void set_weight_type(nlohmann::json& config, const std::string& type);

struct ModelFiles {
  std::vector<std::string> paths;                   // each file once
  std::map<std::string, std::string> file_of_name;  // as the index says; empty for a single file
};

// The files of an index, `text` being that of `path`, as paths beside it; whether they are there is not looked at.
// InputError for an index that is broken or whose files leave the directory.
ModelFiles parse_model_index(std::string_view text, const std::string& path);

// True if the directory has weights in one of the forms that find_model_files reads.
bool has_model_files(const std::string& directory);

// A file of the directory that another program has pickled weights in (pytorch_model_tp_0_pp_0.bin, ...), or "".
std::string find_pickle(const std::string& directory);

// safetensors come first. InputError for a directory that has no weights, an index that is broken or whose files leave
// the directory, and shards that are missing, all named.
ModelFiles find_model_files(const std::string& directory);

}  // namespace gantry
