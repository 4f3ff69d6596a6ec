// `gantry compare`: compares one step in several layouts with the same step on a single rank.
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>

#include "gantry/booster/compare_layouts.h"
#include "gantry/booster/recipe.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/core/error.h"
#include "gantry/core/io/output.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kDrawnSamples = 32;  // without a data section
constexpr std::int64_t kMostDrawnTokens = 32, kDrawnChoices = 3;

nlohmann::json model_keys(const Config& config) {
  return nlohmann::json::parse(config.model.config_json.empty() ? "{}" : config.model.config_json);
}

std::string trained_task(const Config& config) {
  const auto& family = models::families().at(config.model.policy);
  return family.task ? family.task(model_keys(config)) : "tokens";
}

bool has_head(const nlohmann::json& keys, const char* head) {
  const auto names = keys.value("architectures", std::vector<std::string>());
  return !names.empty() && names.front().ends_with(head);
}

// Returns random labels for the head of the model. `shape`: the shape of the inputs.
torch::Tensor drawn_labels(const nlohmann::json& keys, at::IntArrayRef shape, std::int64_t vocabulary,
                           const std::function<torch::Tensor(std::int64_t, at::IntArrayRef)>& draw) {
  if (has_head(keys, "ForMultipleChoice")) return draw(shape[1], {shape[0]});
  if (has_head(keys, "ForSequenceClassification")) return draw(keys.value("num_labels", 2), {shape[0]});
  return draw(has_head(keys, "ForTokenClassification") ? keys.value("num_labels", 2) : vocabulary, shape);
}

// Returns random tokens and labels, by train.seed.
TensorDict drawn_batch(const Config& config) {
  const auto& family = models::families().at(config.model.policy);
  const auto keys = model_keys(config);
  const std::int64_t tokens = std::min(kMostDrawnTokens, family.context_length(keys));
  const std::int64_t vocabulary = family.vocabulary_size(keys);
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(config.train.seed);
  const auto draw = [&](std::int64_t below, at::IntArrayRef shape) {
    return torch::randint(below, shape, generator, torch::kInt64);
  };
  std::vector<std::int64_t> shape = {kDrawnSamples, tokens};
  const bool compares_texts = trained_task(config) == "contrast" && !keys.contains("vision_config");
  if (has_head(keys, "ForMultipleChoice") || compares_texts) shape.insert(shape.begin() + 1, kDrawnChoices);
  TensorDict batch{{"input_ids", draw(vocabulary, shape)}};
  if (trained_task(config) == "spans") {
    batch.set("start_positions", draw(tokens, {kDrawnSamples}));
    batch.set("end_positions", draw(tokens, {kDrawnSamples}));
  } else if (compares_texts) {
    return batch;
  } else if (trained_task(config) == "contrast") {
    const auto vision = keys.value("vision_config", nlohmann::json::object());
    const std::int64_t size = vision.value("image_size", std::int64_t{224});
    batch.set("pixel_values",
              torch::randn({kDrawnSamples, vision.value("num_channels", std::int64_t{3}), size, size}, generator));
  } else {
    batch.set("labels", drawn_labels(keys, shape, vocabulary, draw));
  }
  return batch;
}

Json difference_json(const LayoutDifference& difference) {
  return {{"name", difference.name},
          {"has_run", difference.has_run},
          {"largest", difference.largest},
          {"relative", difference.relative},
          {"reference_norm", difference.reference}};
}

Json comparison_json(const LayoutComparison& comparison) {
  Json gradients = Json::array();
  for (const auto& gradient : comparison.wrong_gradients) gradients.push_back(difference_json(gradient));
  Json losses = Json::array();
  for (const auto& added : comparison.wrong_losses)
    losses.push_back({{"name", added.name},
                      {"added_in", added.places},
                      {"loss", added.loss},
                      {"reference_loss", added.reference_loss}});
  return {{"layout", comparison.layout},
          {"equal", comparison.is_equal()},
          {"error", comparison.error},
          {"error_code", comparison.error_code},
          {"loss", comparison.error.empty() ? Json(comparison.loss) : Json()},
          {"reference_loss", comparison.reference_loss},
          {"wrong_losses", std::move(losses)},
          {"outputs_compared", comparison.outputs},
          {"gradients_compared", comparison.gradients},
          {"first_output", comparison.first_output ? difference_json(*comparison.first_output) : Json()},
          {"wrong_gradients", std::move(gradients)}};
}

}  // namespace

int run_compare(const CompareArguments& arguments) {
  Config config = Config::load(arguments.config, arguments.sets);
  load_libraries(config);
  config = resolve_model(std::move(config));
  if (trained_task(config) == "none")
    throw UsageError(
        {"gantry compare", "the model has no head to be trained", "", "set architectures in model.config"});
  const TensorDict batch = config.data.format.empty() ? drawn_batch(config) : build_loader(config)->next().tensors;
  CompareOptions options{.criterion = build_criterion(config), .tolerance = arguments.tolerance};
  options.load = [&](Boosted& boosted, const ProcessGroupMesh& mesh) { load_weights(config, boosted, mesh); };
  const std::vector<std::string> own{""};
  const auto comparisons = compare_layouts(
      config, [&] { return build_model(config); }, batch, arguments.layouts.empty() ? own : arguments.layouts, options);
  std::string text;
  Json all = Json::array();
  for (const auto& comparison : comparisons) {
    text += describe(comparison);
    all.push_back(comparison_json(comparison));
  }
  print_output(arguments.json ? all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : text);
  return exit_code_of(comparisons);
}

}  // namespace gantry::cli
