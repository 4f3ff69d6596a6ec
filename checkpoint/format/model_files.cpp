#include "gantry/checkpoint/format/model_files.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/format/staged_files.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/core/io/python_json.h"
#include "gantry/core/io/strict_json.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::pair<const char*, const char*> kForms[] = {{kModelFile, kModelIndex}, {kPickledFile, kPickledIndex}};
constexpr std::uint64_t kMostJsonBytes = std::uint64_t{1} << 28;

json parse_json_object(std::string_view text, const std::string& path) {
  json parsed;
  const std::string fault = parse_strict(text, parsed);
  if (parsed.is_object()) return parsed;
  const std::string like = likeness(text.substr(0, 64));
  throw InputError({path, fault.empty() ? "the file is not a JSON object" : fault, "a JSON object",
                    like.empty() ? "download it again" : "it looks like " + like});
}

// Throws if a shard that the index lists does not exist.
ModelFiles existing_shards(const std::string& directory, const char* index) {
  const std::string path = directory + "/" + index;
  const ModelFiles files = parse_model_index(read_text(path, kMostJsonBytes), path);
  std::vector<std::string> missing;
  for (const auto& shard : files.paths)
    if (!path_exists(shard)) missing.push_back(fs::path(shard).filename().string());
  if (!missing.empty())
    throw InputError(
        {directory,
         fmt::format("{} of {} shards are missing: {}", missing.size(), files.paths.size(), fmt::join(missing, ", ")),
         "every file that its index lists", "download the missing files"});
  return files;
}

}  // namespace

ModelFiles parse_model_index(std::string_view text, const std::string& path) {
  const json index = parse_json_object(text, path);
  if (!index.contains("weight_map") || !index["weight_map"].is_object())
    throw InputError(
        {path, "the index has no weight_map", "an object that maps tensor names to files", "download it again"});
  ModelFiles files;
  std::set<std::string> names;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string() || !is_plain_file_name(file.get<std::string>()))
      throw InputError({path, "it lists the file " + file.dump(), "a file of the directory", ""});
    names.insert(file.get<std::string>());
    files.file_of_name[tensor] = file.get<std::string>();
  }
  const std::string directory = fs::path(path).parent_path().string();
  for (const auto& name : names) files.paths.push_back(directory + "/" + name);
  return files;
}

void set_weight_type(json& config, const std::string& type) {
  config["torch_dtype"] = type;
  config["dtype"] = type;
  const auto text = config.find("text_config");  // the text decoder of a larger model
  if (text == config.end() || !text->is_object()) return;
  for (const char* key : {"torch_dtype", "dtype"})
    if (text->contains(key)) (*text)[key] = type;
}

json read_json_object(const std::string& path) {
  return parse_json_object(without_bare_infinity(read_text(path, kMostJsonBytes)), path);
}

bool has_model_files(const std::string& directory) {
  return std::any_of(std::begin(kForms), std::end(kForms), [&](const auto& form) {
    return path_exists(directory + "/" + form.first) || path_exists(directory + "/" + form.second);
  });
}

std::string find_pickle(const std::string& directory) {
  std::set<std::string> found;
  for (const auto& entry : entries_of(directory)) {
    const std::string name = entry.filename();
    if (name.starts_with("pytorch_model") && (name.ends_with(".bin") || name.ends_with(".bin.index.json")))
      found.insert(name);
  }
  return found.empty() ? "" : *found.begin();
}

ModelFiles find_model_files(const std::string& directory) {
  if (!is_folder(directory))
    throw InputError({directory, "the path is not a directory", "a Hugging Face model directory", "check the path"});
  for (const auto& [file, index] : kForms) {
    if (path_exists(directory + "/" + file)) return {{directory + "/" + file}, {}};
    if (path_exists(directory + "/" + index)) return existing_shards(directory, index);
  }
  const std::string pickle = find_pickle(directory);
  throw InputError(
      {directory,
       fmt::format("the directory has neither {} nor {}{}", kModelFile, kModelIndex, unfinished_placing(directory)),
       "a Hugging Face model directory",
       pickle.empty() ? "convert its weights to safetensors"
                      : "its " + pickle + " has another form; convert it to safetensors"});
}

void check_index(const ModelFiles& files, const std::string& path,
                 const std::function<bool(const std::string& name)>& contains) {
  for (const auto& [name, file] : files.file_of_name)
    if (path.ends_with("/" + file) && !contains(name))
      throw InputError(
          {path, "the file has no tensor '" + name + "', which the index lists", "", "download both again"});
}

void require_other_directory(const std::string& output, const std::vector<std::string>& sources) {
  for (const std::string& source : sources) {
    std::error_code missing;
    if (fs::equivalent(source, output, missing))
      throw UsageError({output, "the directory is read, and the result would overwrite it",
                        "a directory for the result alone", "choose another directory"});
  }
}

}  // namespace gantry
