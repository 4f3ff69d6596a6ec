// Several LoRA adapters of one model, of which one is active, like load_adapter() and set_adapter() of PEFT's models.
// Each has its own rank, scale and layers. They are not parameters: they are not trained, and are not in checkpoints.
#pragma once

#include <memory>
#include <string>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/config.h"
#include "gantry/plugins/boosted.h"

namespace gantry {

class NamedAdapters {
 public:
  // `boosted`: a model with the weights of its base and without adapters of its own (build_model() without `lora`),
  // which was boosted with this configuration. It can have an optimizer, also with ZeRO 3. No adapter is active. Throws
  // UsageError for a model with adapters, and ConfigError with parallel.vocabulary or train.device_graphs, which do not
  // support adapters that change. `config`, `boosted` and `mesh` must outlive the object.
  NamedAdapters(const Config& config, Boosted& boosted, const ProcessGroupMesh& mesh);
  ~NamedAdapters();  // the active adapter stays active

  // Reads this rank's part of the adapter in `directory`, a directory of PEFT, and does not activate it. Needs the
  // memory of its factors, of its modules_to_save (for the first one, also of their values in the base) and of its
  // trained tokens, which ZeRO does not shard. Collective over the world.
  // Throws UsageError if there is an adapter of this name, and InputError if it has another base model or a feature
  // that Gantry does not support, or if the files cannot be read. An adapter with modules_to_save is a UsageError for a
  // model with an optimizer, and an InputError if model.quantize encodes them.
  void load(const std::string& name, const std::string& directory);

  // From now on, outputs are those of the base with this adapter. Throws UsageError for an unknown name. Not
  // collective: all ranks call it between the same calls of execute_pipeline() or generate().
  void activate(const std::string& name);
  // The same for the base without an adapter.
  void deactivate();
  const std::string& active() const;  // "": none

 private:
  class Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace gantry
