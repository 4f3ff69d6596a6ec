// The identity of a reference model, by the contents of its files: its log-probabilities depend on it and the samples.
#pragma once

#include <functional>
#include <string>

#include "gantry/core/config.h"
#include "gantry/data/dataset.h"

namespace gantry {

// The kinds of references.
enum class ReferenceForm {
  kInitial,  // the weights of the run before its first step
  kModel,    // those of the directory train.objective.reference
  kAdapter   // those of model.path with the adapter in train.objective.reference
};

// The form of the configuration, by the files of the directory.
ReferenceForm reference_form(const Config& config);

// A digest of everything except the files in train.objective.reference: the kind of samples, and the configuration,
// precision and quantization of the model. If the reference uses them, also the contents of the files in model.path and
// lora.path, or the seed of the initial weights. The layout, the batch size and the other keys of the objective are not
// included. Throws InputError if a file cannot be read.
std::string digest_of_settings(const Config& config, ReferenceForm form, const OpenProgress& progress);

// A digest of the contents of the files in train.objective.reference. "" for kInitial.
std::string digest_of_reference_files(const Config& config, ReferenceForm form, const OpenProgress& progress);

}  // namespace gantry
