#include "gantry/booster/named_adapters.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <optional>
#include <vector>

#include "gantry/booster/lora_names.h"
#include "gantry/checkpoint/disk_work.h"
#include "gantry/checkpoint/format/adapter_config.h"
#include "gantry/checkpoint/format/adapter_files.h"
#include "gantry/core/error.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/models/lora.h"
#include "gantry/models/trained_tokens.h"
#include "gantry/nn/adaptable.h"
#include "gantry/nn/trained_rows.h"
#include "gantry/plugins/model_setup.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

// The factors of one layer that this rank holds.
struct UsedAdapter {
  nn::Adaptable* layer;
  std::string stack;
  nn::LayerAdapter adapter;
};

// The layers of this rank that read trained tokens.
struct UsedTokens {
  models::TokenLayers layers;
  std::shared_ptr<nn::TrainedRows> rows;

  void use(const std::shared_ptr<nn::TrainedRows>& used) const {
    layers.table->use_tokens(used);
    if (layers.tied_head) layers.tied_head->use_tokens(used);
  }
};

struct LoadedAdapter {
  std::vector<UsedAdapter> layers;
  std::optional<UsedTokens> tokens;
  std::map<std::string, torch::Tensor> saved;  // values of modules_to_save, by the names of parameters
};

// Allocates an adapter's tensors of this rank, which are read afterwards.
class NewAdapter {
 public:
  NewAdapter(const StageModule& module, const ProcessGroupMesh& mesh, torch::ScalarType type)
      : module_(module), mesh_(mesh), type_(type) {
    for (const auto& placement : module.all_placements) names_.push_back(placement.name);
    for (const auto& one : module.parameters) {
      weights_[one.placement.name] = one.tensor;
      for (const auto& alias : one.placement.aliases) weights_[alias] = one.tensor;
    }
  }

  std::optional<UsedAdapter> add_layer(const models::AdaptedLayer& adapted) {
    auto& layer = dynamic_cast<nn::Adaptable&>(*adapted.module);
    const auto [a, b, magnitude] = layer.adapter_places(adapted.options, adapted.stack);
    const std::string weight = adapted.path + "." + (adapted.stack.empty() ? "weight" : adapted.stack);
    nn::LayerAdapter made;
    made.scale = adapted.options.scale;
    made.a = add_factor(a, adapted.path, weight);
    made.b = add_factor(b, adapted.path, weight);
    if (magnitude) made.magnitude = add_factor(*magnitude, adapted.path, weight);
    if (!made.a.defined()) return std::nullopt;
    return UsedAdapter{&layer, adapted.stack, made};
  }

  std::optional<UsedTokens> add_tokens(const models::TokenLayers& layers, const std::vector<int>& tokens) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const Placement place = nn::place_of_factor(kTrainedTokens, {count, layers.table->options.embedding_dim()}, {});
    const torch::Tensor values = add_factor(place, layers.path, layers.path + ".weight");
    if (!values.defined()) return std::nullopt;
    return UsedTokens{
        layers, std::make_shared<nn::TrainedRows>(std::vector<std::int64_t>(tokens.begin(), tokens.end()), values)};
  }

  torch::Tensor add_saved(const HeldTensor& parameter) {
    held_.push_back({parameter.placement, torch::empty_like(parameter.tensor)});
    return held_.back().tensor;
  }

  const std::vector<std::string>& names() const { return names_; }
  const std::vector<HeldTensor>& held() const { return held_; }

 private:
  // Undefined if this rank does not hold the weight.
  torch::Tensor add_factor(Placement place, const std::string& path, const std::string& weight) {
    place.name = path + "." + place.name;
    names_.push_back(place.name);
    const auto found = weights_.find(weight);
    if (found == weights_.end()) return {};
    const torch::Tensor made =
        torch::empty(place.local_shape(mesh_.coordinates()), found->second.options().dtype(type_).requires_grad(false));
    held_.push_back({std::move(place), made});
    return made;
  }

  const StageModule& module_;
  const ProcessGroupMesh& mesh_;
  const torch::ScalarType type_;
  std::vector<std::string> names_;  // the names of all parameters
  std::map<std::string, torch::Tensor> weights_;
  std::vector<HeldTensor> held_;
};

void refuse_changes(const Config& config, const BoostedModel& model) {
  const StageModule& module = model.stage_module_unmaterialized();
  if (has_adapters(module))
    throw UsageError({"NamedAdapters", "the model has adapters of its own", "a model of a configuration without lora",
                      "remove the section lora, and load its adapter by a name"});
  if (module.vocabulary())
    throw ConfigError({"parallel.vocabulary",
                       "the pipeline's ranks share embedding and head, which adapters do not support", "stages",
                       "remove parallel.vocabulary"});
  if (config.train.device_graphs)
    throw ConfigError({"train.device_graphs", "a CUDA graph repeats the adapter with which it was captured", "false",
                       "remove train.device_graphs"});
}

}  // namespace

class NamedAdapters::Parts {
 public:
  Parts(const Config& config, Boosted& boosted, const ProcessGroupMesh& mesh)
      : config_(config), boosted_(boosted), mesh_(mesh) {
    refuse_changes(config, *boosted.model);
  }

  void load(const std::string& name, const std::string& directory) {
    if (name.empty()) throw UsageError({"NamedAdapters", "the name is empty", "a name", ""});
    if (adapters_.contains(name))
      throw UsageError({"NamedAdapters", fmt::format("there is already an adapter '{}'", name), "each name once", ""});
    adapters_.emplace(name, read(directory));
  }

  void activate(const std::string& name) {
    const auto found = adapters_.find(name);
    if (found == adapters_.end()) {
      std::vector<std::string> known;
      for (const auto& [each, adapter] : adapters_) known.push_back(each);
      throw UsageError({"NamedAdapters", fmt::format("there is no adapter '{}'", name),
                        known.empty() ? "an adapter of load()" : fmt::format("{}", fmt::join(known, ", ")), ""});
    }
    deactivate();
    for (const auto& [layer, stack, adapter] : found->second.layers) layer->use_adapter(adapter, stack);
    if (const auto& tokens = found->second.tokens) tokens->use(tokens->rows);
    set_saved(found->second.saved);
    active_ = name;
  }

  void deactivate() {
    if (active_.empty()) return;
    const LoadedAdapter& loaded = adapters_.at(active_);
    for (const auto& [layer, stack, adapter] : loaded.layers) layer->use_adapter({}, stack);
    if (loaded.tokens) loaded.tokens->use(nullptr);
    std::map<std::string, torch::Tensor> before;
    for (const auto& [name, values] : loaded.saved) before[name] = base_.at(name);
    set_saved(before);
    active_.clear();
  }

  const std::string& active() const { return active_; }

 private:
  StageModule& module() const { return boosted_.model->stage_module(); }

  LoadedAdapter read(const std::string& directory) {
    LoraConfig given = read_adapter_config(directory);
    given.dropout = 0;
    const LoraConfig lora = lora_of_family(config_, std::move(given));
    const models::AdaptedLayers adapted = adapted_by(lora);
    NewAdapter made(module(), mesh_, dtype_of(config_.precision));
    LoadedAdapter loaded;
    for (const auto& layer : adapted.layers)
      if (auto used = made.add_layer(layer)) loaded.layers.push_back(std::move(*used));
    if (const auto& tokens = lora.trainable_token_indices; !tokens.empty())
      loaded.tokens = made.add_tokens(models::token_layers(module().module(), tokens), tokens);
    for (const auto& parameter : module().parameters) {
      const auto is_parameter = [&](const torch::Tensor& saved) { return saved.is_same(parameter.tensor); };
      if (std::ranges::none_of(adapted.saved, is_parameter)) continue;
      if (parameter.tensor.scalar_type() == torch::kUInt8)
        throw InputError(
            {directory,
             "the adapter has its own values of " + parameter.placement.name + ", but the layer is quantized",
             "modules_to_save that model.quantize leaves out", "remove model.quantize, or use lora.path"});
      const std::string& name = parameter.placement.name;
      loaded.saved[name] = made.add_saved(parameter);
    }
    DiskProgress progress;
    work_on_disk(mesh_.world_group(), disk_limits(config_.comm.timeout_seconds), progress, [&] {
      load_adapter_of(config_, lora, made.names(), made.held(), mesh_.coordinates(),
                      [&](std::uint64_t bytes) { progress.add(bytes + 1); });
    });
    keep_base(loaded);
    return loaded;
  }

  models::AdaptedLayers adapted_by(const LoraConfig& lora) const {
    torch::nn::Module& model = module().module();
    models::AdaptedLayers adapted;
    try {
      adapted = models::adapted_layers(model, lora, family_names(config_), unadapted_layers(model, config_, lora),
                                       unadapted_parts(config_));
    } catch (const ConfigError& error) {
      throw InputError(lora.path + "/" + kAdapterConfig + ": " + error.what());
    }
    if (!adapted.saved.empty() && boosted_.optimizer)
      throw UsageError({lora.path,
                        "the adapter has modules_to_save, but the model has an optimizer that may train them",
                        "a model without an optimizer", "boost the model without an optimizer, or use lora.path"});
    return adapted;
  }

  // Keeps the values in the base of the parameters that the adapter replaces.
  void keep_base(const LoadedAdapter& loaded) {
    if (loaded.saved.empty()) return;
    const torch::NoGradGuard no_grad;
    for (const auto& parameter : module().parameters) {
      const std::string& name = parameter.placement.name;
      if (loaded.saved.contains(name) && !base_.contains(name)) base_[name] = parameter.tensor.detach().clone();
    }
  }

  void set_saved(const std::map<std::string, torch::Tensor>& values) {
    if (values.empty()) return;
    const torch::NoGradGuard no_grad;
    for (const auto& parameter : module().parameters)
      if (const auto found = values.find(parameter.placement.name); found != values.end()) {
        torch::Tensor target = parameter.tensor;
        target.copy_(found->second);
      }
  }

  const Config& config_;
  Boosted& boosted_;
  const ProcessGroupMesh& mesh_;
  std::map<std::string, LoadedAdapter> adapters_;
  std::map<std::string, torch::Tensor> base_;  // the values of modules_to_save, by the names of parameters
  std::string active_;                         // empty: none
};

NamedAdapters::NamedAdapters(const Config& config, Boosted& boosted, const ProcessGroupMesh& mesh)
    : parts_(new Parts(config, boosted, mesh)) {}
NamedAdapters::~NamedAdapters() = default;

void NamedAdapters::load(const std::string& name, const std::string& directory) { parts_->load(name, directory); }
void NamedAdapters::activate(const std::string& name) { parts_->activate(name); }
void NamedAdapters::deactivate() { parts_->deactivate(); }
const std::string& NamedAdapters::active() const { return parts_->active(); }

}  // namespace gantry
