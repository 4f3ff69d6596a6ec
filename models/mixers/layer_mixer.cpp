#include "gantry/models/mixers/layer_mixer.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/mixers/gated_delta_mixer.h"
#include "gantry/models/mixers/kimi_delta_mixer.h"
#include "gantry/models/mixers/lightning_mixer.h"
#include "gantry/models/mixers/rg_lru_mixer.h"
#include "gantry/models/mixers/selective_scan_mixer.h"
#include "gantry/models/mixers/short_convolution_mixer.h"
#include "gantry/models/mixers/ssd_mixer.h"

namespace gantry::models {

// A line for each kind.
std::shared_ptr<LayerMixer> make_mixer(const MixerKind& kind, torch::nn::Module& layer, std::int64_t hidden) {
  if (const auto* of = dynamic_cast<const ShortConvolution*>(&kind))
    return std::make_shared<ShortConvolutionMixer>(*of, layer, hidden);
  if (const auto* of = dynamic_cast<const GatedDelta*>(&kind))
    return std::make_shared<GatedDeltaMixer>(*of, layer, hidden);
  if (const auto* of = dynamic_cast<const KimiDelta*>(&kind))
    return std::make_shared<KimiDeltaMixer>(*of, layer, hidden);
  if (const auto* of = dynamic_cast<const Lightning*>(&kind))
    return std::make_shared<LightningMixer>(*of, layer, hidden);
  if (const auto* of = dynamic_cast<const Ssd*>(&kind)) return std::make_shared<SsdMixer>(*of, layer, hidden);
  if (const auto* of = dynamic_cast<const RgLru*>(&kind)) return std::make_shared<RgLruMixer>(*of, layer, hidden);
  if (const auto* of = dynamic_cast<const SelectiveScan*>(&kind))
    return std::make_shared<SelectiveScanMixer>(*of, layer, hidden);
  throw ConfigError({"decoder", fmt::format("layers with {} have no module", kind.name()), "a kind of make_mixer()",
                     "add the kind to models/mixers/layer_mixer.cpp"});
}

}  // namespace gantry::models
