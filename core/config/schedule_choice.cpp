#include "gantry/core/config/schedule_choice.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace gantry {

int microbatch_count(const ScheduleOptions& schedule, int stages, std::int64_t replica_samples) {
  std::int64_t count = stages > 1 ? 2 * static_cast<std::int64_t>(stages) : 1;
  if (schedule.microbatches) count = *schedule.microbatches;
  if (schedule.microbatch_size) count = (replica_samples + *schedule.microbatch_size - 1) / *schedule.microbatch_size;
  return static_cast<int>(std::clamp<std::int64_t>(count, 0, replica_samples));
}

namespace {

// Returns 0 if the key does not have a number of layers.
int count_in(const nlohmann::json& model_keys, const char* name) {
  const auto found = model_keys.find(name);
  if (found == model_keys.end() || !found->is_number_integer()) return 0;
  const auto layers = found->get<long long>();
  return layers > 0 && layers <= std::numeric_limits<int>::max() / 2 ? static_cast<int>(layers) : 0;
}

}  // namespace

int mtp_layers_in(const nlohmann::json& model_keys) {
  if (!model_keys.is_object()) return 0;
  const auto factor = model_keys.find("mtp_loss_scaling_factor");
  if (factor == model_keys.end() || !factor->is_number() || factor->get<double>() <= 0) return 0;
  const int layers = count_in(model_keys, "num_nextn_predict_layers");
  return layers > 0 ? layers : count_in(model_keys, "num_mtp_layers");
}

int layers_in(const nlohmann::json& model_keys) {
  if (!model_keys.is_object()) return 0;
  // Layers of encoder and decoder. In Whisper, num_hidden_layers are those of the encoder only.
  for (const auto& [encoder, decoder] :
       {std::pair("num_layers", "num_decoder_layers"), std::pair("encoder_layers", "decoder_layers")})
    if (const int first = count_in(model_keys, encoder), second = count_in(model_keys, decoder);
        first > 0 && second > 0)
      return first + second;
  for (const char* name : {"n_layer", "n_layers", "num_hidden_layers"})
    if (const int layers = count_in(model_keys, name); layers > 0) return layers + mtp_layers_in(model_keys);
  return 0;
}

namespace {

constexpr std::string_view kMeasured = "balanced: ";

}  // namespace

std::optional<std::string> measured_run(const ScheduleOptions& schedule) {
  const auto* name = std::get_if<std::string>(&schedule.layers);
  if (!name || !name->starts_with(kMeasured)) return std::nullopt;
  return name->substr(kMeasured.size());
}

bool is_balanced(const ScheduleOptions& schedule) {
  const auto* name = std::get_if<std::string>(&schedule.layers);
  return name && (*name == "balanced" || name->starts_with(kMeasured));
}

}  // namespace gantry
