#include "gantry/checkpoint/tied_tensors.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <memory>

#include "gantry/checkpoint/encoded_tensor.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/stored_names.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr std::int64_t kComparedRows = 1024;  // number of rows converted at a time

// The tied tensors in the files, by the family's names. Shards without such a tensor are not opened.
class TiedPlaces {
 public:
  TiedPlaces(const std::string& directory, const models::ModelFamily& family, const json& keys,
             const std::vector<models::TiedTensor>& tied)
      : names_(family, keys), tied_(tied) {
    const ModelFiles found = find_model_files(directory);
    std::map<std::string, std::vector<std::string>> by_path;
    for (const auto& [name, file] : found.file_of_name) by_path[directory + "/" + file].push_back(name);
    for (const auto& path : found.paths)
      if (by_path.empty() || has_any(by_path[path])) open(path);
  }

  const TensorPlace* find(const std::string& name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : &found->second;
  }

 private:
  bool is_tied(const std::string& name) const {
    return std::any_of(tied_.begin(), tied_.end(), [&](const auto& one) { return one.hugging_face == name; });
  }
  bool has_any(const std::vector<std::string>& stored) const {
    return std::any_of(stored.begin(), stored.end(), [&](const auto& name) { return is_tied(names_.find(name)); });
  }
  void open(const std::string& path) {
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    for (const auto& stored : files_.back()->names())
      if (const std::string name = names_.find(stored); is_tied(name))
        places_.try_emplace(name, TensorPlace{files_.back().get(), stored});
  }

  StoredNames names_;
  const std::vector<models::TiedTensor>& tied_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, TensorPlace> places_;
};

bool same_values(const TensorPlace& first, const TensorPlace& second) {
  if (first.shape() != second.shape()) return false;
  const torch::Tensor a = first.file->view(first.name).contiguous(), b = second.file->view(second.name).contiguous();
  if (a.scalar_type() == b.scalar_type())
    return a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
  for (std::int64_t row = 0; row < a.size(0); row += kComparedRows) {
    const std::int64_t rows = std::min(kComparedRows, a.size(0) - row);
    if (!torch::equal(a.narrow(0, row, rows).to(torch::kFloat64), b.narrow(0, row, rows).to(torch::kFloat64)))
      return false;
  }
  return true;
}

// `full`: a complete config.json. It may lack Gantry's own flags if they are false.
bool says(const json& full, const json& keys) {
  return std::all_of(keys.items().begin(), keys.items().end(),
                     [&](const auto& item) { return full.value(item.key(), json(false)) == item.value(); });
}

std::string note_of(const std::string& name, const TensorPlace* place, const TensorPlace& table, bool differs) {
  if (!place) return fmt::format("{} is missing, so {} is used for it", name, table.name);
  if (!differs) return fmt::format("{} equals {}, so the two are one parameter", place->name, table.name);
  return fmt::format("{} differs from {}, so it is used, although config.json ties the two", place->name, table.name);
}

bool is_complete(const std::string& directory) {
  if (!has_model_files(directory)) return false;
  try {
    find_model_files(directory);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

StoredTies compare_tied_tensors(const std::string& directory, const models::ModelFamily& family, const json& config) {
  StoredTies found;
  const auto tied = family.tied_tensors ? family.tied_tensors(config) : std::vector<models::TiedTensor>();
  if (tied.empty() || !is_complete(directory)) return found;
  const TiedPlaces places(directory, family, config, tied);
  const auto stored =
      std::find_if(tied.begin(), tied.end(), [&](const auto& one) { return places.find(one.hugging_face); });
  if (stored == tied.end()) return found;
  const TensorPlace& table = *places.find(stored->hugging_face);
  const json full = family.hugging_face_config(config);
  for (const auto& one : tied) {
    const TensorPlace* place = places.find(one.hugging_face);
    const bool differs = place && place->name != table.name && !same_values(*place, table);
    const json& keys = differs ? one.apart : one.together;
    if (says(full, keys)) continue;
    found.keys.update(keys);
    found.notes.push_back(directory + ": " + note_of(one.hugging_face, place, table, differs));
  }
  return found;
}

}  // namespace gantry
