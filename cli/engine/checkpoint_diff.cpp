// `gantry checkpoint diff` of a checkpoint and a Hugging Face model, whose tensor names and orientations differ.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/format/difference.h"
#include "gantry/checkpoint/format/stored_form.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/stored_names.h"
#include "gantry/cli/difference_text.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/cli/engine/trained_model.h"
#include "gantry/cli/progress_bar.h"
#include "gantry/cli/warnings.h"

namespace gantry::cli {
namespace {

using nlohmann::json;

struct KnownModel {
  const models::ModelFamily* family = nullptr;  // null: names are compared without conversion
  json keys;
};

// Returns the model of the side that is not in Hugging Face format.
KnownModel model_of(const TensorCatalog& catalog, const std::vector<std::string>& libraries) {
  const Manifest* manifest = catalog.manifest();
  load_named_libraries(libraries, manifest ? manifest->config_text : "", catalog.path());
  if (manifest) return {&models::families().at(manifest->policy), manifest->model_config};
  const json keys = read_model_config(catalog.path());
  const std::string family = models::family_of(keys);
  return {family.empty() ? nullptr : &models::families().at(family), keys};
}

// Returns the tensors by their Hugging Face names. If a tensor has several such names, the additional names are
// included only if the other side has them, too.
ComparedNames own_names(const TensorCatalog& catalog, const KnownModel& model, const ComparedNames& theirs) {
  ComparedNames names;
  const std::string kind = catalog.manifest() ? "model/" : "";
  for (const auto& name : model.family->tensor_names(model.keys)) {
    const std::string key = kind + name.name;
    if (!catalog.tensors().contains(key)) continue;
    for (const auto& part : name.parts) names[part.hugging_face] = {key, false, part.shards};
    if (!name.parts.empty()) continue;
    names[name.hugging_face] = {key, name.transposed};
    for (const auto& copy : name.copies)
      if (theirs.contains(copy)) names[copy] = {key, name.transposed};
  }
  return names;
}

ComparedNames their_names(const TensorCatalog& catalog, const KnownModel& model) {
  ComparedNames names;
  const StoredNames known(*model.family, model.keys);
  for (const auto& [key, tensor] : catalog.tensors()) {
    const std::string name = known.find(key);
    if (!name.empty()) names.try_emplace(name, ComparedTensor{key});
  }
  return names;
}

// True for tensors of other heads, and for those that the model has under another name.
bool is_unread(const KnownModel& model, const std::string& name) {
  if (const auto& is_other = model.family->is_ignored_tensor; is_other && is_other(model.keys, name)) return true;
  if (!model.family->tied_tensors) return false;
  const auto tied = model.family->tied_tensors(model.keys);
  return std::any_of(tied.begin(), tied.end(), [&](const auto& one) { return one.hugging_face == name; });
}

std::vector<TensorDifference> compare(TensorCatalog& a, TensorCatalog& b, const std::vector<std::string>& libraries) {
  const bool a_is_theirs = stored_form(a.path()) == StoredForm::kHuggingFace;
  const TensorCatalog &own = a_is_theirs ? b : a, &their = a_is_theirs ? a : b;
  const KnownModel model = model_of(own, libraries);
  ProgressBar bar("comparing");
  if (!model.family || !model.family->tensor_names) return compare_tensors(a, b, bar.function());
  ComparedNames theirs = their_names(their, model);
  const ComparedNames ours = own_names(own, model, theirs);
  std::erase_if(theirs, [&](const auto& each) { return !ours.contains(each.first) && is_unread(model, each.first); });
  return compare_tensors(a, a_is_theirs ? theirs : ours, b, a_is_theirs ? ours : theirs, bar.function());
}

}  // namespace

int run_checkpoint_diff(const CheckpointDiffArguments& arguments) {
  TensorCatalog a = TensorCatalog::open(arguments.a, warn_of_passed_over),
                b = TensorCatalog::open(arguments.b, warn_of_passed_over);
  print_differences(compare(a, b, arguments.libraries), a.path(), b.path(), arguments);
  return 0;
}

}  // namespace gantry::cli
