#include "gantry/booster/image_chats.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/booster/run_task.h"
#include "gantry/data/images/processor_entries.h"
#include "gantry/data/json_lines.h"
#include "gantry/data/weighted_sources.h"
#include "gantry/generation/image_format.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/models/vision/images_by_sample.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::optional<models::VisionSpec> vision_of(const Config& config) {
  const auto spec = models::described_decoder(model_json(config), config.model.policy);
  return spec ? spec->vision : std::nullopt;
}

// Collates samples. The images of all samples are concatenated, and their entries get a leading dimension of
// samples.
TensorDict batch_with_images(std::vector<TensorDict> samples, const std::vector<SampleEntry>& entries,
                             const models::VisionSpec& vision) {
  TensorDict batch;
  for (const SampleEntry& entry : entries) {
    std::vector<torch::Tensor> rows;
    for (TensorDict& sample : samples) rows.push_back(sample.take(entry.name));
    batch.set(entry.name, torch::stack(rows));
  }
  for (const auto& [name, tensor] : joined_entries(samples)) batch.set(name, tensor);
  return models::completed_images(std::move(batch), vision);
}

}  // namespace

LineRules chat_rules(const Config& config, const DataConfig& data) {
  LineRules rules = line_rules(data, vocabulary_of(config));
  const auto vision = vision_of(config);
  if (!vision) return rules;
  for (const std::string& folder : {config.model.path, data.tokenizer})
    if (!rules.images && !folder.empty() && has_image_processor(folder))
      rules.images = std::make_shared<const ImageReader>(image_format_of(*vision), folder);
  rules.no_images = {.reason = fmt::format("neither model.path '{}' nor data.tokenizer '{}' has "
                                           "preprocessor_config.json or processor_config.json",
                                           config.model.path, data.tokenizer),
                     .expected = "the configuration of the model's image processor",
                     .remedy = "copy it from the original model, or remove the images"};
  return rules;
}

std::function<TensorDict(const std::vector<TensorDict>&)> collate_images(const Config& config,
                                                                         const std::vector<SampleEntry>& entries) {
  return [entries, vision = *vision_of(config)](const std::vector<TensorDict>& samples) {
    return batch_with_images(samples, entries, vision);
  };
}

SampleSource chat_samples(const Config& config, const DataConfig& data, const std::string& key) {
  const LineRules rules = chat_rules(config, data);
  const auto open = [rules, data, key](const OpenProgress& progress) {
    return open_sources(data, key, [&](const std::string& path, const std::string& where) {
      return open_json_lines(data_files("jsonl", path, where), rules, where + " " + path, progress);
    });
  };
  SampleSource source{
      .entries = packed_entries(data.sequence_length), .sequence_length = data.sequence_length, .open = open};
  if (rules.images) source.collate = collate_images(config, source.entries);
  return source;
}

}  // namespace gantry
