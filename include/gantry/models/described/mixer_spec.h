// The mixer of a decoder's layer if it is not attention: a kind, such as short convolutions, and its sizes. Independent
// of LibTorch.
#pragma once

#include <memory>

namespace gantry::models {

class MixerKind;  // models/described/mixers/mixer_kind.h

// A value: copies share the description of the kind, which does not change. Two are equal if both are empty, or if
// their kinds and sizes are equal.
class MixerSpec {
 public:
  MixerSpec() = default;  // empty: no such mixer
  // NOLINTNEXTLINE(google-explicit-constructor): layer.mixer = std::make_shared<const ShortConvolution>(...)
  template <class Kind>
  MixerSpec(std::shared_ptr<Kind> kind) : kind_(std::move(kind)) {}

  explicit operator bool() const { return kind_ != nullptr; }
  const MixerKind& operator*() const { return *kind_; }
  const MixerKind* operator->() const { return kind_.get(); }
  bool operator==(const MixerSpec& other) const;

 private:
  std::shared_ptr<const MixerKind> kind_;
};

}  // namespace gantry::models
