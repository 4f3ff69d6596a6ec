#include "gantry/checkpoint/upcycle.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "gantry/checkpoint/checkpoint_files.h"
#include "gantry/checkpoint/format/companion_files.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/stored_form.h"
#include "gantry/checkpoint/format/verify.h"
#include "gantry/checkpoint/stored_model.h"
#include "gantry/checkpoint/tied_tensors.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/philox.h"

namespace gantry {
namespace {

using nlohmann::json;

// The family with experts for a dense family. Names are relative to a layer, as in the files.
struct Target {
  const char *dense, *family, *architecture;
  const char* block;                       // prefix of the router and the experts
  std::array<const char*, 3> projections;  // names within an expert, in the order of kProjections
  const char *experts_key, *width_key;
};

constexpr std::array<const char*, 3> kProjections = {"mlp.gate_proj.weight", "mlp.up_proj.weight",
                                                     "mlp.down_proj.weight"};
constexpr std::array<const char*, 3> kOfMixtral = {"w1", "w3", "w2"};
constexpr std::array<const char*, 3> kOfQwen = {"gate_proj", "up_proj", "down_proj"};
constexpr Target kTargets[] = {
    {"llama", "mixtral", "MixtralForCausalLM", "block_sparse_moe", kOfMixtral, "num_local_experts",
     "intermediate_size"},
    {"mistral", "mixtral", "MixtralForCausalLM", "block_sparse_moe", kOfMixtral, "num_local_experts",
     "intermediate_size"},
    {"qwen3", "qwen3_moe", "Qwen3MoeForCausalLM", "mlp", kOfQwen, "num_experts", "moe_intermediate_size"}};

// A model with Hugging Face's names. Each tensor is read when it is written.
struct DenseModel {
  std::string family;
  json keys;
  std::vector<ExportTensor> tensors;
  std::shared_ptr<void> files;  // keeps the source files of the tensors open
  std::string companions;       // directory of the files other than weights
};

DenseModel of_checkpoint(const std::string& folder) {
  struct Open {
    explicit Open(const std::string& folder) : manifest(read_manifest(folder)), files(folder, &manifest) {}
    Manifest manifest;
    CheckpointFiles files;
  };
  const auto open = std::make_shared<Open>(folder);
  const Manifest& manifest = open->manifest;
  check_all_hashes(folder, manifest);
  const auto& family = models::families().at(manifest.policy);
  const auto find = [&](const std::string& name) -> const ManifestTensor& {
    const auto found = manifest.tensors.find("model/" + name);
    if (found == manifest.tensors.end())
      throw CheckpointError(
          {folder, "the checkpoint has no parameter '" + name + "'", "the parameters of its model", ""});
    return found->second;
  };
  return {.family = manifest.policy,
          .keys = family.hugging_face_config(manifest.model_config),
          .tensors = hugging_face_tensors(family.tensor_names(manifest.model_config), open->files, find),
          .files = open,
          .companions = companion_directory(folder, manifest)};
}

DenseModel of_directory(const std::string& directory) {
  const json config = read_model_config(directory);
  DenseModel dense{
      .family = models::family_of(config), .keys = {}, .tensors = {}, .files = {}, .companions = directory};
  if (dense.family.empty())
    throw InputError(
        {directory + "/config.json", "Gantry does not support this model family", "llama, mistral or qwen3", ""});
  const auto& family = models::families().at(dense.family);
  json keys = config;
  keys.update(compare_tied_tensors(directory, family, config).keys);
  dense.keys = family.hugging_face_config(keys);
  const auto stored = std::make_shared<const StoredModel>(directory, family, keys);
  for (const auto& name : family.tensor_names(keys)) {
    if (!stored->contains(name.hugging_face))
      throw InputError({directory, "the files have no tensor '" + name.hugging_face + "'",
                        "the tensors that config.json describes", "check that config.json belongs to these weights"});
    const std::string found = name.hugging_face;
    dense.tensors.push_back(
        {found, stored->shape(found), stored->type(found), [stored, found] { return stored->read(found); }});
  }
  return dense;
}

const Target& target_of(const DenseModel& dense) {
  const auto* found = std::find_if(std::begin(kTargets), std::end(kTargets),
                                   [&](const Target& target) { return dense.family == target.dense; });
  if (found == std::end(kTargets))
    throw ConfigError({"upcycle", "the model family is " + dense.family, "llama, mistral or qwen3",
                       "choose a model of one of these families"});
  return *found;
}

void check(const UpcycleOptions& options) {
  const std::int64_t pieces = options.granularity;
  const auto refuse = [](const char* flag, std::string what, std::string expected) {
    throw UsageError({flag, std::move(what), std::move(expected), ""});
  };
  if (options.used < 1 || options.used > options.experts)
    refuse("--top-k", fmt::format("the value is {}, but there are {} experts", options.used, options.experts),
           "a number from 1 to the number of experts");
  for (const auto& [flag, count] : {std::pair("--experts", options.experts), std::pair("--top-k", options.used)})
    if (pieces < 1 || count % pieces != 0)
      refuse(flag, fmt::format("the value is {} with granularity {}", count, pieces),
             "a multiple of the granularity, so that no MLP is divided");
}

// The keys of config.json, without those that the family with experts does not know. Throws if one of these
// has an effect.
json keys_of(const DenseModel& dense, const Target& target, const UpcycleOptions& options) {
  json keys = dense.keys;
  for (const char* key : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
    if (keys.value(key, false))
      throw ConfigError({key, std::string("the value is true, which is not supported for ") + target.family, "false",
                         "upcycle a model without it"});
    keys.erase(key);
  }
  for (const char* key : {"pretraining_tp", "layer_types", "max_window_layers"}) keys.erase(key);
  const std::int64_t width = dense.keys.at("intermediate_size").get<std::int64_t>();
  if (width % options.granularity != 0)
    throw UsageError(
        {"--granularity",
         fmt::format("the value is {}, which does not divide intermediate_size {}", options.granularity, width),
         "a divisor of the MLP's width", ""});
  keys.update({{"model_type", target.family},
               {"architectures", {target.architecture}},
               {target.experts_key, options.experts},
               {"num_experts_per_tok", options.used},
               {target.width_key, width / options.granularity}});
  if (std::string(target.family) == "qwen3_moe")
    keys.update({{"norm_topk_prob", true}, {"decoder_sparse_step", 1}, {"mlp_only_layers", json::array()}});
  return models::families().at(target.family).hugging_face_config(keys);
}

// The index of a tensor in kProjections, and the prefix of its name: "model.layers.3.".
std::optional<std::pair<std::size_t, std::string>> projection_of(const std::string& name) {
  for (std::size_t i = 0; i < kProjections.size(); ++i)
    if (name.ends_with(std::string(".") + kProjections[i]))
      return std::pair(i, name.substr(0, name.size() - std::string(kProjections[i]).size()));
  return std::nullopt;
}

// Slice `piece` of `pieces` along the MLP's width: rows of gate and up, columns of down.
ExportTensor expert_of(const ExportTensor& full, std::size_t projection, std::string name, std::int64_t piece,
                       std::int64_t pieces) {
  const int dim = projection == 2 ? 1 : 0;
  ExportTensor expert{std::move(name), full.shape, full.type, {}};
  const std::int64_t size = expert.shape[dim] /= pieces;
  expert.read = [read = full.read, dim, piece, size, factor = projection == 2 ? pieces : 1] {
    const torch::Tensor part = read().narrow(dim, piece * size, size);
    return factor == 1 ? part : part * factor;
  };
  return expert;
}

ExportTensor router_of(const ExportTensor& gate, std::string name, double range, const UpcycleOptions& options) {
  const std::int64_t copies = options.experts / options.granularity, hidden = gate.shape[1];
  const PhiloxKey key{.seed = options.seed, .stream = philox_stream(name)};
  const auto read = [=, type = gate.type, pieces = options.granularity] {
    torch::Tensor rows = torch::empty({copies, hidden}, torch::kFloat64);
    philox_normal(key, 0, rows.numel(), rows.data_ptr<double>());
    return (rows * range).repeat_interleave(pieces, 0).to(type);
  };
  return {std::move(name), {options.experts, hidden}, gate.type, read};
}

}  // namespace

void upcycle(const std::string& dense, const std::string& directory, const UpcycleOptions& options,
             const ExportOptions& written) {
  check(options);
  require_other_directory(directory, {dense});
  const DenseModel model = stored_form(dense) == StoredForm::kHuggingFace ? of_directory(dense) : of_checkpoint(dense);
  const Target& target = target_of(model);
  const json keys = keys_of(model, target, options);
  const double range = keys.value("initializer_range", 0.02);
  std::vector<ExportTensor> tensors;
  for (const ExportTensor& tensor : model.tensors) {
    const auto found = projection_of(tensor.name);
    if (!found) {
      tensors.push_back(tensor);
      continue;
    }
    const auto& [projection, layer] = *found;
    const std::string below = layer + target.block;
    if (projection == 0) tensors.push_back(router_of(tensor, below + ".gate.weight", range, options));
    for (std::int64_t expert = 0; expert < options.experts; ++expert)
      tensors.push_back(expert_of(tensor, projection,
                                  fmt::format("{}.experts.{}.{}.weight", below, expert, target.projections[projection]),
                                  expert % options.granularity, options.granularity));
  }
  ExportOptions complete = written;
  complete.model_directory = model.companions;
  save_hugging_face(directory, keys, tensors, complete);
}

}  // namespace gantry
