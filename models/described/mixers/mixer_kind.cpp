#include "gantry/models/described/mixers/mixer_kind.h"

namespace gantry::models {

bool MixerSpec::operator==(const MixerSpec& other) const {
  if (kind_ == other.kind_) return true;
  return kind_ && other.kind_ && kind_->equals(*other.kind_);
}

}  // namespace gantry::models
