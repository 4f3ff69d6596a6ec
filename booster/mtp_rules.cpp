#include "gantry/booster/mtp_rules.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>

#include "gantry/booster/run_task.h"
#include "gantry/core/error.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/work_of_keys.h"

namespace gantry {
namespace {

[[noreturn]] void refuse_mtp(const std::string& key, const std::string& what, const std::string& reason) {
  throw ConfigError({key,
                     fmt::format("{} but model.config.{} trains layers of multi-token prediction, and {}", what,
                                 models::kMtpFactor, reason),
                     "one of the two", fmt::format("remove {}, or set model.config.{} to 0", key, models::kMtpFactor)});
}

}  // namespace

void refuse_with_mtp(const Config& config) {
  const auto spec = models::described_decoder(model_json(config), config.model.policy);
  if (!spec || spec->mtp_loss == 0) return;
  if (config.lora.is_on())
    refuse_mtp("lora", "adapters are configured,", "the model classes of PEFT have no such layers");
  if (config.train.objective.is_on())
    refuse_mtp("train.objective", fmt::format("the value is {},", config.train.objective.name),
               "their loss is the cross entropy of tokens");
  if (config.train.label_smoothing > 0)
    refuse_mtp("train.label_smoothing", fmt::format("the value is {},", config.train.label_smoothing),
               "their losses are not smoothed");
  if (config.train.device_graphs)
    refuse_mtp("train.device_graphs", "CUDA graphs are configured,", "such graphs do not support added losses");
  if (config.parallel.vocabulary == "pipeline")
    refuse_mtp("parallel.vocabulary", "the value is pipeline,", "these use the embedding in their own stage");
}

}  // namespace gantry
