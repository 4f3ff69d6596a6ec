#include "gantry/checkpoint/format/model_files.h"

#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

#include "gantry/checkpoint/format/files.h"
#include "gantry/core/strict_json.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMostJsonBytes = std::uint64_t{1} << 28;

ModelFiles from_index(const std::string& directory) {
  const std::string path = directory + "/" + kModelIndex;
  const json index = read_json_object(path);
  if (!index.contains("weight_map") || !index["weight_map"].is_object())
    throw InputError({path, "has no weight_map", "an object of tensor names and files", "fetch it again"});
  ModelFiles files;
  std::set<std::string> names;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string() || !is_plain_file_name(file.get<std::string>()))
      throw InputError({path, "names the file " + file.dump(), "a file of the directory", ""});
    names.insert(file.get<std::string>());
    files.file_of_name[tensor] = file.get<std::string>();
  }
  std::vector<std::string> missing;
  for (const auto& name : names) {
    if (!fs::exists(directory + "/" + name)) missing.push_back(name);
    files.paths.push_back(directory + "/" + name);
  }
  if (!missing.empty())
    throw InputError({directory,
                      fmt::format("lacks {} of {} shards: {}", missing.size(), names.size(), fmt::join(missing, ", ")),
                      "every file that its index names", "fetch them"});
  return files;
}

}  // namespace

json read_json_object(const std::string& path) {
  const std::string text = read_text(path, kMostJsonBytes);
  const std::string fault = json_fault(text);
  const json parsed = fault.empty() ? json::parse(text) : json();
  if (parsed.is_object()) return parsed;
  const std::string like = likeness(std::string_view(text).substr(0, 64));
  throw InputError({path, fault.empty() ? "is no JSON object" : fault, "a JSON object",
                    like.empty() ? "fetch it again" : "it looks like " + like});
}

ModelFiles find_model_files(const std::string& directory) {
  if (!fs::is_directory(directory))
    throw InputError({directory, "is no directory", "a Hugging Face model directory", "check the path"});
  if (fs::exists(directory + "/" + kModelFile)) return {{directory + "/" + kModelFile}, {}};
  if (fs::exists(directory + "/" + kModelIndex)) return from_index(directory);
  const bool pickled =
      fs::exists(directory + "/pytorch_model.bin") || fs::exists(directory + "/pytorch_model.bin.index.json");
  throw InputError({directory, fmt::format("has neither {} nor {}", kModelFile, kModelIndex),
                    "a Hugging Face model directory",
                    pickled ? "its pytorch_model.bin is a pickle; convert it to safetensors"
                            : "convert its weights to safetensors"});
}

}  // namespace gantry
