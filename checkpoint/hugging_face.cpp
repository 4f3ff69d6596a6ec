#include "gantry/checkpoint/hugging_face.h"

#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <set>

#include "gantry/checkpoint/files.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw InputError({path, "can't be read", "a Hugging Face model directory", "check the path"});
  const json parsed = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) throw InputError({path, "is no JSON object", "", "fetch it again"});
  return parsed;
}

// A file's name in an index: a plain name, that does not leave the directory.
std::string shard_path(const std::string& directory, const json& name) {
  if (!name.is_string() || name.get<std::string>().find('/') != std::string::npos ||
      name.get<std::string>().starts_with(".."))
    throw InputError({directory, "its index names the file " + name.dump(), "a file of the directory", ""});
  return directory + "/" + name.get<std::string>();
}

// The directory's tensors by the family's names, wherever they lie.
class TensorSource {
 public:
  TensorSource(const std::string& directory, const models::ModelFamily& family, const json& keys)
      : directory_(directory) {
    std::set<std::string> paths;
    const std::string index = directory + "/model.safetensors.index.json";
    if (fs::exists(directory + "/model.safetensors")) {
      paths.insert(directory + "/model.safetensors");
    } else if (fs::exists(index)) {
      const json parsed = read_json(index);
      if (!parsed.contains("weight_map") || !parsed["weight_map"].is_object())
        throw InputError({index, "has no weight_map", "", "fetch it again"});
      for (const auto& [name, file] : parsed["weight_map"].items()) paths.insert(shard_path(directory, file));
    } else {
      throw InputError({directory, "has neither model.safetensors nor model.safetensors.index.json",
                        "a Hugging Face model directory", "convert .bin files to safetensors"});
    }
    for (const auto& path : paths) {
      files_.push_back(std::make_unique<SafetensorsFile>(path));
      for (const auto& name : files_.back()->names())
        if (const std::string known = family.normalise_name ? family.normalise_name(keys, name) : name; !known.empty())
          places_[known] = {files_.back().get(), name};
    }
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, place] : places_) names.push_back(name);
    return names;
  }
  bool contains(const std::string& name) const { return places_.contains(name); }
  std::pair<const SafetensorsFile*, std::string> at(const std::string& name) const { return places_.at(name); }

 private:
  std::string directory_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, std::pair<const SafetensorsFile*, std::string>> places_;
};

// Refuses missing and unexpected names.
void check_names(const TensorSource& source, const std::vector<models::TensorName>& names,
                 const models::ModelFamily& family, const json& keys, const std::string& directory) {
  std::set<std::string> expected;
  std::vector<std::string> missing, unexpected;
  for (const auto& name : names) {
    expected.insert(name.hugging_face);
    if (!source.contains(name.hugging_face) && !name.new_allowed) missing.push_back(name.hugging_face);
  }
  for (const auto& name : source.names())
    if (!expected.contains(name) && !(family.is_other_heads && family.is_other_heads(keys, name)))
      unexpected.push_back(name);
  if (missing.empty() && unexpected.empty()) return;
  throw InputError({directory,
                    fmt::format("{} tensors are missing ({}) and {} unexpected ({})", missing.size(),
                                fmt::join(missing, ", "), unexpected.size(), fmt::join(unexpected, ", ")),
                    "the tensors that config.json describes", "check that config.json belongs to these weights"});
}

void load_one(const TensorSource& source, const models::TensorName& name, const HeldTensor& held,
              const std::map<std::string, int>& coordinates) {
  const auto [file, stored] = source.at(name.hugging_face);
  std::vector<std::int64_t> expected = held.placement.global_shape;
  if (name.transposed) std::reverse(expected.begin(), expected.end());
  if (file->shape(stored) != expected) {
    throw InputError({name.hugging_face, fmt::format("has the shape [{}]", fmt::join(file->shape(stored), ", ")),
                      fmt::format("[{}]", fmt::join(expected, ", ")),
                      "check that config.json belongs to these weights"});
  }
  const AxisPlacement& along = held.placement.along("tp");
  const int dims = static_cast<int>(expected.size());
  torch::Tensor part = along.sharded() ? file->read_slice(stored, name.transposed ? dims - 1 - along.dim : along.dim,
                                                          along.ranges(coordinates.at("tp")))
                                       : file->read(stored);
  if (name.transposed) part = part.t();
  const torch::NoGradGuard no_grad;
  torch::Tensor target = held.tensor;
  target.copy_(part);
}

}  // namespace

json read_model_config(const std::string& directory) { return read_json(directory + "/config.json"); }

std::vector<std::string> load_hugging_face(const std::string& directory, const models::ModelFamily& family,
                                           const json& keys, const std::vector<HeldTensor>& held,
                                           const std::map<std::string, int>& coordinates) {
  const TensorSource source(directory, family, keys);
  const auto names = family.tensor_names(keys);
  check_names(source, names, family, keys, directory);
  std::map<std::string, const models::TensorName*> by_name;
  std::vector<std::string> fresh;
  for (const auto& name : names) {
    by_name[name.name] = &name;
    if (!source.contains(name.hugging_face)) fresh.push_back(name.name);
  }
  for (const auto& tensor : held) {
    const auto found = by_name.find(tensor.placement.name);
    if (found == by_name.end())
      throw InternalError({tensor.placement.name, "has no name in Hugging Face's files", "", ""});
    if (source.contains(found->second->hugging_face)) load_one(source, *found->second, tensor, coordinates);
  }
  return fresh;
}

TensorDict to_hugging_face(const std::vector<models::TensorName>& names, const TensorDict& tensors) {
  TensorDict renamed;
  for (const auto& name : names) {
    const torch::Tensor& tensor = tensors.at(name.name);
    renamed.set(name.hugging_face, name.transposed ? tensor.t().contiguous() : tensor);
  }
  return renamed;
}

void save_hugging_face(const std::string& directory, const json& config, const TensorDict& tensors) {
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) throw ResourceError({directory, failure.message(), "a folder that can be made", ""});
  write_safetensors(directory + "/model.safetensors", tensors, {{"format", "pt"}});
  write_text_durably(directory + "/config.json", config.dump(2) + "\n");
}

}  // namespace gantry
