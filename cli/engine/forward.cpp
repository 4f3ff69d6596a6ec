#include <filesystem>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/comm/launch.h"
#include "gantry/core/error.h"
#include "gantry/models/model_family.h"
#include "gantry/plugins/gather.h"

namespace gantry::cli {
namespace {

Config config_for(const ForwardArguments& arguments) {
  const nlohmann::json model = {{"model", {{"path", arguments.model}}}};
  return resolve_model(Config::parse(model.dump(), "--model", arguments.sets));
}

TensorDict read_batch(const std::string& path) {
  TensorDict batch;
  for (auto& [name, tensor] : read_safetensors(path)) {
    if (name != "input_ids" && name != "labels" && name != "attention_mask" && name != "token_type_ids")
      throw InputError(
          {path, "has an entry '" + name + "'", "input_ids, labels, attention_mask or token_type_ids", ""});
    batch.set(name, tensor.to(torch::kInt64));
  }
  if (batch.at("input_ids").dim() != 2)
    throw InputError({path, "input_ids is " + describe(batch.at("input_ids")), "[samples, tokens]", ""});
  if (!batch.contains("labels")) batch.set("labels", torch::full_like(batch.at("input_ids"), -100));
  if (batch.at("labels").sizes() != batch.at("input_ids").sizes())
    throw InputError({path,
                      "labels is " + describe(batch.at("labels")) + " and input_ids " + describe(batch.at("input_ids")),
                      "equal shapes", ""});
  return batch;
}

// This replica's samples of the whole batch.
Batch replica_batch(const TensorDict& whole, const ProcessGroupMesh& mesh) {
  Batch batch = make_batch(whole);
  const std::int64_t samples = batch.samples;
  const auto pieces = split_evenly(samples, mesh.size("dp"));
  const auto replica = static_cast<std::size_t>(mesh.coordinate("dp"));
  const auto [begin, end] = replica < pieces.size() ? pieces[replica] : std::pair(samples, samples);
  batch = slice(batch, begin, end);
  batch.global_samples = samples;
  return batch;
}

void forward_rank(World& world, const Config& config, const ForwardArguments& arguments, const TensorDict& whole) {
  auto* plugin = new HybridParallelPlugin(world, config);
  Booster booster{std::unique_ptr<Plugin>(plugin)};
  const ProcessGroupMesh& mesh = plugin->mesh();
  const bool wants_gradients = !arguments.grads.empty();

  auto model = build_model(config);
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  if (wants_gradients) optimizer = build_optimizer(config, *model);
  auto boosted = booster.boost(model, optimizer, cross_entropy());
  load_weights(config, boosted, mesh);
  boosted.model->eval();

  const auto result =
      booster.execute_pipeline(replica_batch(whole, mesh), boosted, {.return_outputs = true, .broadcast_loss = true});
  // The last stage's first rank has its replica's logits; the others of dp add theirs.
  if (plugin->stages().holds_last()) {
    torch::Tensor logits = result.outputs.get("logits");
    if (!logits.defined())
      throw InputError({arguments.batch, "gives replica " + mesh.mesh().describe_rank(world.rank()) + " no sample", "",
                        "use fewer data-parallel ranks"});
    logits = all_gather_along(mesh["dp"], logits, 0, all_gather_numbers(mesh["dp"], logits.size(0)));
    if (mesh.coordinate("dp") == 0 && mesh.coordinate("tp") == 0)
      write_safetensors(arguments.output,
                        {{"logits", logits}, {"loss", torch::tensor(*result.loss, logits.options())}});
  }
  if (wants_gradients) {
    const auto& gradients = boosted.optimizer->gradients();
    const TensorDict full = gather_tensors(boosted.model->stage_module(), plugin->stages(), mesh,
                                           [&](std::size_t i) { return gradients.gradient(i); });
    if (world.is_main()) {
      const auto& family = models::families().at(config.model.policy);
      write_safetensors(arguments.grads,
                        to_hugging_face(family.tensor_names(nlohmann::json::parse(config.model.config_json)), full));
    }
  }
  mesh.world_group().barrier().wait();
}

}  // namespace

int run_forward(const ForwardArguments& arguments) {
  const Config config = config_for(arguments);
  load_libraries(config);
  const TensorDict batch = read_batch(arguments.batch);
  return launch(config, [&](World& world) { forward_rank(world, config, arguments, batch); });
}

}  // namespace gantry::cli
