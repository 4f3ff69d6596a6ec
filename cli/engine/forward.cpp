#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <nlohmann/json.hpp>

#include "gantry/booster/image_encoder.h"
#include "gantry/booster/recipe.h"
#include "gantry/booster/run_task.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/cli/engine/forward_batch.h"
#include "gantry/cli/engine/router_outputs.h"
#include "gantry/cli/engine/trained_model.h"
#include "gantry/cli/warnings.h"
#include "gantry/core/base/warning.h"
#include "gantry/core/error.h"
#include "gantry/launch/launch.h"
#include "gantry/models/decoder.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/models/model_family.h"
#include "gantry/models/peft_names.h"
#include "gantry/models/vision/images_by_sample.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/gather.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::cli {
namespace {

Config config_for(const ForwardArguments& arguments) {
  nlohmann::json model = {{"model", {{"path", arguments.model}}}};
  if (!arguments.adapter.empty()) model["lora"] = {{"path", arguments.adapter}};
  Config config = Config::parse(model.dump(), "--model", arguments.sets);
  load_libraries(config);  // which may register the model family
  if (has_images(arguments.batch)) config = with_image_encoder(std::move(config));
  return with_stored_precision(resolve_model(std::move(config)));
}

// Adds the router logits, the balancing loss over all layers, and the loss with that balancing loss. The balancing
// losses that single stages and microbatches have added to the loss are subtracted first.
void add_router_outputs(TensorDict& outputs, const StepResult& result, const RouterOutputs& routers,
                        const TensorDict& logits, double coefficient, const torch::Tensor& mask) {
  const torch::Tensor balancing = routers.balancing_loss(logits, mask);
  for (const auto& [name, tensor] : logits) outputs.set(name, tensor);
  outputs.set("aux_loss", balancing.to(torch::kFloat32));
  if (!result.loss) return;
  double cross_entropy = *result.loss;
  for (const auto& [name, added] : result.added_losses) cross_entropy -= added;
  outputs.set("ce_loss", torch::tensor(cross_entropy, torch::kFloat32));
  outputs.set("loss", torch::tensor(cross_entropy + coefficient * balancing.item<double>(), torch::kFloat32));
}

// Prints a line that names the outputs with NaN or infinite values, if there are any.
void warn_of_non_finite(const TensorDict& outputs) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : outputs)
    if (tensor.is_floating_point() && !tensor.isfinite().all().item<bool>()) names.push_back(name);
  if (!names.empty()) print_warning(fmt::format("these outputs are not finite: {}", fmt::join(names, ", ")));
}

// Gathers the outputs of all replicas, and writes them on the first rank of the last stage. Collective over dp.
void write_outputs(const StepResult& result, const ProcessGroupMesh& mesh, const ForwardArguments& arguments,
                   const std::function<void(TensorDict&)>& add_others) {
  TensorDict full;
  for (const auto& [name, part] : result.outputs)
    full.set(name, all_gather_along(mesh[axis::kData], part, 0, all_gather_numbers(mesh[axis::kData], part.size(0))));
  if (result.outputs.empty())
    throw InputError({arguments.batch, "the batch has no sample for replica " + mesh.mesh().describe_rank(mesh.rank()),
                      "", "use fewer data-parallel ranks"});
  if (mesh.batch_group().rank() != 0 || mesh.coordinate(axis::kTensor) != 0) return;
  if (result.loss) full.set("loss", torch::tensor(*result.loss, full.begin()->second.options()));
  add_others(full);
  warn_of_non_finite(full);
  write_safetensors(arguments.output, full);
}

// Returns the PEFT names of the parameters with a gradient.
std::vector<models::TensorName> adapter_names(const Config& config, const TensorDict& gradients,
                                              const std::vector<models::TensorName>& names) {
  std::vector<std::string> parameters;
  for (const auto& [name, gradient] : gradients) parameters.push_back(name);
  return models::trained_names(parameters, config.lora, names);
}

bool has_loss(const Config& config, const TensorDict& batch) {
  return batch.contains("labels") || batch.contains("start_positions") || task_of(config) == "contrast";
}

void forward_rank(World& world, const Config& config, const ForwardArguments& arguments, const TensorDict& batch) {
  auto* plugin = new HybridParallelPlugin(world, config);
  Booster booster{std::unique_ptr<Plugin>(plugin)};
  const ProcessGroupMesh& mesh = plugin->mesh();
  const bool wants_gradients = !arguments.grads.empty();

  auto model = build_model(config);
  RouterOutputs routers(*model);
  const auto* decoder = dynamic_cast<const models::DecoderImpl*>(model.get());
  const double coefficient = decoder ? decoder->spec.router_loss : 0;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  if (wants_gradients) optimizer = build_optimizer(config, *model);
  auto boosted = booster.boost(model, optimizer, has_loss(config, batch) ? build_criterion(config) : Criterion());
  const auto fresh = load_weights(config, boosted, mesh);
  if (world.is_main()) warn_of_new_weights(fresh);
  boosted.model->eval();

  const auto result = booster.execute_pipeline(
      replica_part(make_batch(batch), mesh.size(axis::kData), mesh.coordinate(axis::kData)), boosted,
      {.return_loss = static_cast<bool>(boosted.criterion),
       .return_outputs = true,
       .broadcast_loss = true,
       .observer = routers.empty() ? nullptr : &routers});
  TensorDict logits;
  if (!routers.empty()) {
    const torch::Tensor ids = batch.at("input_ids");
    const bool in_shards = config.parallel.sequence_parallel && mesh.size(axis::kTensor) > 1;
    logits = routers.gather(mesh, ids.size(0), ids.size(1), in_shards, plugin->sequence_parts(boosted));
  }
  if (plugin->stages().holds_last())
    write_outputs(result, mesh, arguments, [&](TensorDict& outputs) {
      if (!routers.empty())
        add_router_outputs(outputs, result, routers, logits, coefficient, batch.get("attention_mask"));
    });
  if (wants_gradients) {
    auto& gradients = boosted.optimizer->gradients();
    gradients.complete();
    const TensorDict full = gather_tensors(boosted.model->stage_module(), plugin->stages(), mesh,
                                           [&](std::size_t i) { return gradients.gradient(i); });
    if (world.is_main()) {
      const auto& family = models::families().at(config.model.policy);
      const auto names = family.tensor_names(nlohmann::json::parse(config.model.config_json));
      write_safetensors(arguments.grads,
                        to_hugging_face(config.lora.is_on() ? adapter_names(config, full, names) : names, full));
    }
  }
  mesh.world_group().barrier().wait();
}

}  // namespace

namespace {

// Labels that are real numbers make several labels of a classification head without problem_type, as in transformers.
void set_problem_type(Config& config, const models::ModelFamily& family, const TensorDict& batch) {
  const torch::Tensor labels = batch.get("labels");
  nlohmann::json keys = nlohmann::json::parse(config.model.config_json);
  if (!labels.defined() || !labels.is_floating_point() || !family.problem_type || !family.problem_type(keys).empty())
    return;
  keys["problem_type"] = "multi_label_classification";
  config.model.config_json = keys.dump();
}

}  // namespace

int run_forward(const ForwardArguments& arguments) {
  Config config = config_for(arguments);
  const auto& family = models::families().at(config.model.policy);
  const std::string task =
      family.task ? family.task(nlohmann::json::parse(config.model.config_json)) : std::string("tokens");
  if (task == "none" && !arguments.grads.empty())
    throw UsageError(
        {"--grads", "the model in " + arguments.model + " has no head to be trained", "", "leave out --grads"});
  TensorDict batch = read_batch(arguments.batch, family, task);
  const auto spec = models::described_decoder(nlohmann::json::parse(config.model.config_json), config.model.policy);
  if (spec && spec->vision) batch = models::images_by_sample(std::move(batch), *spec->vision);
  if ((task == "classes" || task == "images") && !batch.contains("labels") && !arguments.grads.empty())
    throw UsageError({"--grads", arguments.batch + " has no labels", "", "add labels, or leave out --grads"});
  set_problem_type(config, family, batch);
  return launch(config, [&](World& world) { forward_rank(world, config, arguments, batch); });
}

}  // namespace gantry::cli
