#include "family_case.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mutex>
#include <nlohmann/json.hpp>

#include "case_batch.h"
#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/models/described/mixers/mixer_kind.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/models/model_family.h"
#include "gantry/models/vision/images_by_sample.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/gather.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

double largest_entry(const torch::Tensor& tensor) { return tensor.abs().max().item<double>(); }

Config family_config(const std::string& folder, const Layout& layout, bool sequence_parallel,
                     const std::string& precision) {
  Config config = layout_config(layout);
  config.model.path = folder;
  config.model.config_json = extra_keys(folder);
  config.parallel.sequence_parallel = sequence_parallel;
  config.precision = precision;
  return resolve_model(std::move(config));
}

// Zeroes the logits of padding, which are not compared. The encoder's mask does not apply to a decoder.
// Router logits have one row per token.
torch::Tensor of_counted(const torch::Tensor& logits, const TensorDict& inputs) {
  const torch::Tensor mask = inputs.get("attention_mask");
  if (!mask.defined() || mask.dim() > 2 || inputs.contains("decoder_input_ids")) return logits;
  const torch::Tensor counted = (logits.dim() == 2 ? mask.reshape({-1}) : mask).unsqueeze(-1);
  return logits * counted.to(logits.scalar_type());
}

nlohmann::json keys_of_case(const std::string& folder) {
  return nlohmann::json::parse(read_file(folder + "/config.json"));
}

std::string architecture_of(const std::string& folder) {
  return keys_of_case(folder)["architectures"].at(0).get<std::string>();
}

bool runs_all_layouts() { return is_long_form() || std::getenv("GANTRY_FAMILIES") != nullptr; }

std::vector<FamilyLayout> all_layouts() {
  std::vector<FamilyLayout> layouts;
  for (int tensor = 1; tensor <= 3; ++tensor)
    for (int pipeline = 1; pipeline <= 2; ++pipeline)
      for (int context = 1; context <= 2; ++context)
        for (const bool sequence_parallel : {false, true})
          if (tensor > 1 || !sequence_parallel)
            layouts.push_back({.layout = {.pipeline = pipeline, .tensor = tensor, .context = context},
                               .sequence_parallel = sequence_parallel});
  return layouts;
}

// Three layouts that cover each size of tp and of pp, on at most 6 ranks. All variants together cover each
// pair of values of two axes.
std::vector<FamilyLayout> some_layouts(std::size_t variant) {
  std::vector<FamilyLayout> layouts;
  for (const int tensor : {1, 2, 3})
    for (const int pipeline : {1, 2}) {
      if (static_cast<std::size_t>(tensor + pipeline) % 2 != variant % 2) continue;
      const bool shards = (tensor == 2) == (variant / 2 % 2 == 1);
      layouts.push_back(
          {.layout = {.pipeline = pipeline, .tensor = tensor, .context = tensor == 1 ? pipeline : 3 - pipeline},
           .sequence_parallel = tensor > 1 && shards});
    }
  return layouts;
}

}  // namespace

std::string describe(const FamilyLayout& how) {
  return fmt::format("tp {} pp {} cp {} ep {}{}", how.layout.tensor, how.layout.pipeline, how.layout.context,
                     how.layout.expert, how.sequence_parallel ? " sequence parallel" : "");
}

std::vector<FamilyLayout> family_layouts(const std::string& folder) {
  const std::size_t variant = std::hash<std::string>()(fs::path(folder).filename().string());
  std::vector<FamilyLayout> layouts = runs_all_layouts() ? all_layouts() : some_layouts(variant);
  if (has_joint_loss(folder) && !runs_all_layouts())  // only layouts with one stage compare gradients
    for (const int tensor : {2, 3})
      for (const bool sequence_parallel : {false, true})
        layouts.push_back({.layout = {.tensor = tensor}, .sequence_parallel = sequence_parallel});
  for (FamilyLayout& how : layouts) {
    how.layout.tensor = std::min(how.layout.tensor, largest_tensor(folder));
    how.layout.context = std::min(how.layout.context, largest_context(folder, how.layout.tensor));
  }
  if (has_one_stage(folder)) {
    std::erase_if(layouts, [](const FamilyLayout& how) { return how.layout.pipeline > 1; });
    for (FamilyLayout& how : layouts) how.layout.context = 1;
  }
  if (shares_no_sequence(folder)) {
    std::erase_if(layouts, [](const FamilyLayout& how) { return runs_all_layouts() && how.layout.context > 1; });
    for (FamilyLayout& how : layouts) how.layout.context = 1;
  }
  return layouts;
}

bool shares_no_sequence(const std::string& folder) {
  return architecture_of(folder).ends_with("ForMultipleChoice") || has_images(folder) || has_one_stage(folder);
}

std::string precision_of_case(const std::string& folder) {
  return folder.ends_with("/falcon_mamba") ? "float64" : "float32";
}

bool has_one_stage(const std::string& folder) { return is_contrastive(keys_of_case(folder)["model_type"]); }

bool has_images(const std::string& folder) {
  return keys_of_case(folder).contains("vision_config") && is_causal_case(folder) &&
         read_safetensors(folder + "/inputs.safetensors").contains("pixel_values");
}

std::string extra_keys(const std::string& folder) {
  if (has_images(folder)) return R"({"image_encoder": true})";
  if (keys_of_case(folder).value("num_nextn_predict_layers", 0) == 0) return "{}";
  bool has_mtp = false;  // published weights may lack the layers that config.json lists
  for (const auto& [name, tensor] : read_safetensors(folder + "/model.safetensors"))
    has_mtp = has_mtp || name.ends_with(".eh_proj.weight");
  return has_mtp ? R"({"mtp_loss_scaling_factor": 0.3})" : "{}";  // the value in mtp/make_mtp.py
}

bool has_mixers(const std::string& folder) {
  const auto spec = models::described_decoder(keys_of_case(folder));
  return spec && std::ranges::any_of(spec->layers, [](const models::LayerSpec& layer) { return !!layer.mixer; });
}

int largest_tensor(const std::string& folder) {
  std::int64_t largest = 1 << 20;
  if (has_images(folder)) {
    const nlohmann::json vision = keys_of_case(folder)["vision_config"];
    largest = vision.value("num_attention_heads", vision.value("num_heads", largest));
  }
  if (const auto spec = models::described_decoder(keys_of_case(folder)))
    for (const models::LayerSpec& layer : spec->layers)
      if (layer.mixer) largest = std::min(largest, layer.mixer->largest_tensor());
  return static_cast<int>(largest);
}

int largest_context(const std::string& folder, int tensor) {
  std::int64_t largest = 1 << 20;
  if (const auto spec = models::described_decoder(keys_of_case(folder)))
    for (const models::LayerSpec& layer : spec->layers)
      if (layer.mixer) largest = std::min(largest, layer.mixer->largest_context(tensor));
  return static_cast<int>(largest);
}

bool has_joint_loss(const std::string& folder) {
  const nlohmann::json keys = keys_of_case(folder);
  const auto has = [](const nlohmann::json& of) { return of.value("output_router_logits", false); };
  return has(keys) || (keys.contains("text_config") && has(keys["text_config"]));
}

bool is_causal_case(const std::string& folder) {
  if (is_contrastive(keys_of_case(folder)["model_type"])) return false;
  return architecture_of(folder).ends_with("ForCausalLM") || keys_of_case(folder).contains("vision_config");
}

std::vector<HeldTensor> full_parameters(const torch::nn::Module& model) {
  std::vector<HeldTensor> held;
  for (const auto& item : model.named_parameters()) {
    Placement full{
        .name = item.key(), .global_shape = item.value().sizes().vec(), .shards = {}, .stages = {0}, .aliases = {}};
    const auto is_known = [&](const HeldTensor& known) { return known.tensor.is_same(item.value()); };
    if (std::none_of(held.begin(), held.end(), is_known)) held.push_back({std::move(full), item.value()});
  }
  return held;
}

// In the files of a causal model, a label belongs to the logits of the previous token. This function shifts
// them.
TensorDict family_batch(const std::string& folder) {
  TensorDict batch;
  for (const auto& [name, tensor] : read_safetensors(folder + "/inputs.safetensors"))
    batch.set(name, tensor.is_floating_point() ? tensor : tensor.to(torch::kInt64));
  if (has_images(folder)) {
    nlohmann::json keys = keys_of_case(folder);
    keys.update(nlohmann::json::parse(extra_keys(folder)));
    batch = models::images_by_sample(std::move(batch), *models::described_decoder(keys)->vision);
  }
  if (!is_causal_case(folder)) return batch;
  const torch::Tensor labels = batch.at("labels");
  torch::Tensor next = torch::full_like(labels, -100);
  next.narrow(1, 0, labels.size(1) - 1).copy_(labels.narrow(1, 1, labels.size(1) - 1));
  batch.set("labels", next);
  return batch;
}

std::vector<std::string> family_cases(const std::string& root) {
  std::vector<std::string> folders;
  const auto add = [&](const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder))
      if (fs::exists(entry.path() / "inputs.safetensors") && !fs::exists(entry.path() / "adapter"))
        folders.push_back(entry.path().string());
  };
  add(root);
  if (const char* more = std::getenv("GANTRY_FAMILIES")) add(more);
  std::sort(folders.begin(), folders.end());
  return folders;
}

FamilyOutcome run_family(const std::string& folder, const Layout& layout, bool sequence_parallel,
                         const std::string& precision) {
  const Config config = family_config(folder, layout, sequence_parallel, precision);
  const TensorDict batch = family_batch(folder);
  const bool joint_apart = (layout.pipeline > 1 || layout.context > 1) && has_joint_loss(folder);
  std::mutex lock;
  FamilyOutcome outcome;  // guarded by the lock
  const int code = start_ranks()(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto model = build_model(config);
    auto boosted = booster.boost(model, build_optimizer(config, *model), build_criterion(config));
    load_weights(config, boosted, plugin->mesh());
    boosted.model->eval();
    const auto result = booster.execute_pipeline(
        make_batch(batch), boosted, {.return_outputs = true, .broadcast_loss = true, .forward_only = joint_apart});
    TensorDict full;
    if (!joint_apart) {
      auto& gradients = boosted.optimizer->gradients();
      gradients.complete();
      full = gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(),
                            [&](std::size_t i) { return gradients.gradient(i); });
    }
    const std::lock_guard guard(lock);
    if (plugin->stages().holds_last() && plugin->mesh().coordinate("tp") == 0)
      for (const auto& [name, tensor] : result.outputs) outcome.outputs.set(name, tensor.cpu());
    if (!world.is_main()) return;
    outcome.loss = outcome.ce_loss = *result.loss;
    for (const auto& [name, added] : result.added_losses) outcome.ce_loss -= added;
    const auto& family = models::families().at(config.model.policy);
    for (const auto& [name, tensor] :
         to_hugging_face(family.tensor_names(nlohmann::json::parse(config.model.config_json)), full))
      outcome.gradients.set(name, tensor.cpu());
  });
  EXPECT_EQ(code, 0) << folder;
  outcome.trained = !joint_apart;
  return outcome;
}

void expect_family(const std::string& folder, const FamilyOutcome& outcome, const std::string& label) {
  const TensorDict expected = read_safetensors(folder + "/expected.safetensors");
  const TensorDict inputs = read_safetensors(folder + "/inputs.safetensors");
  for (const char* output : {"logits", "image_embeds", "text_embeds", "logits_per_image", "logits_per_text"}) {
    if (!expected.contains(output)) continue;
    ASSERT_TRUE(outcome.outputs.contains(output)) << label << " " << output;
    const torch::Tensor difference = outcome.outputs.at(output) - expected.at(output);
    const bool is_of_tokens = output == std::string("logits");
    EXPECT_LE(largest_entry(is_of_tokens ? of_counted(difference, inputs) : difference), 5e-5) << label << output;
  }
  if (expected.contains("ce_loss")) EXPECT_NEAR(outcome.ce_loss, expected.at("ce_loss").item<double>(), 1e-5) << label;
  if (!outcome.trained) return;
  EXPECT_NEAR(outcome.loss, expected.at("loss").item<double>(), 1e-5) << label;
  double all = 0;
  std::size_t count = 0;
  for (const auto& [name, tensor] : expected)
    if (name.starts_with("grad.")) all = std::max(all, largest_entry(tensor)), ++count;
  EXPECT_EQ(outcome.gradients.size(), count) << label;
  for (const auto& [name, gradient] : expected) {
    if (!name.starts_with("grad.")) continue;
    const std::string parameter = name.substr(5);
    ASSERT_TRUE(outcome.gradients.contains(parameter)) << label << " " << parameter;
    EXPECT_LE(largest_entry(outcome.gradients.at(parameter) - gradient),
              2e-4 * std::max(largest_entry(gradient), all / 1000))
        << label << " " << parameter;
  }
}

namespace {

// Routers of Llama 4 in transformers return the scores of the experts that a token uses, and 0 for the others.
torch::Tensor in_form_of_case(const std::string& folder, const torch::Tensor& logits) {
  const auto spec = models::described_decoder(keys_of_case(folder));
  const auto weights_input = [](const models::LayerSpec& one) { return one.experts && one.experts->weights_input; };
  const auto layer = std::ranges::find_if(spec->layers, weights_input);
  if (layer == spec->layers.end()) return logits;
  const torch::Tensor used = std::get<1>(logits.topk(layer->experts->used, -1));
  return torch::zeros_like(logits).scatter(-1, used, logits.sigmoid().gather(-1, used));
}

}  // namespace

void expect_routers(const std::string& folder, const TensorDict& outputs, const std::string& label) {
  const TensorDict expected = read_safetensors(folder + "/expected.safetensors");
  const TensorDict inputs = read_safetensors(folder + "/inputs.safetensors");
  for (const char* loss : {"aux_loss", "loss"}) {
    ASSERT_TRUE(outputs.contains(loss)) << label;
    if (expected.contains("aux_loss"))  // some classes of transformers have no balancing loss
      EXPECT_NEAR(outputs.at(loss).item<double>(), expected.at(loss).item<double>(), 1e-5) << label << " " << loss;
  }
  std::size_t routers = 0;
  for (const auto& [name, logits] : expected) {
    if (!name.starts_with("router_logits.")) continue;
    ASSERT_TRUE(outputs.contains(name)) << label << " " << name;
    const torch::Tensor made = in_form_of_case(folder, outputs.at(name));
    EXPECT_LE(largest_entry(of_counted(made - logits, inputs)), 5e-5) << label << " " << name;
    ++routers;
  }
  EXPECT_GT(routers, 0u) << label;
}

}  // namespace gantry::testing
