// The values of adapters that start from the weights of the base.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/manifest.h"
#include "gantry/core/config.h"
#include "gantry/core/placement.h"
#include "gantry/core/row_encoding.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// Sets the values among `held` that start from the base. DoRA's magnitudes become the norms of the rows of
// the weights, and the trained tokens become the rows of the table. The factors of PiSSA and LoftQ are set
// too. PiSSA's factors are subtracted from the weights, which are also in `held`. The weights are read from
// the files in full, one at a time. For the parameters, see load_hugging_face(). Throws InputError if the
// files lack a weight, or have codes of LoftQ's base.
void load_adapter_starts(const std::string& directory, const models::ModelFamily& family, const nlohmann::json& keys,
                         const LoraConfig& lora, const std::vector<HeldTensor>& held, const Coordinates& coordinates,
                         const std::function<void(std::uint64_t)>& loaded, std::optional<WeightCode> code);

// Turns PiSSA adapters of a checkpoint, whose base lacks their initial factors, into adapters of the original
// base. It appends the initial factors, those of B with the opposite sign. The keys are then
// models::of_original_base().
class OriginalBase {
 public:
  // `directory`: of the base. Throws InputError if it cannot be read. The manifest must outlive the object.
  OriginalBase(const std::string& directory, const Manifest& manifest, LoraConfig lora);
  ~OriginalBase();

  // `name`: the registered name of a factor. Other tensors are returned unchanged.
  torch::Tensor adapted(const std::string& name, const torch::Tensor& tensor);

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace gantry
