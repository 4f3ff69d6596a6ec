// Lines of JSON with a prompt, a preferred completion and a rejected one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/data/line_encoder.h"

namespace gantry {

// The form of the samples.
enum class PairForm {
  // The texts without their last tokens: input_ids, labels (aligned; kNotCounted except for the completions) and
  // document_ids.
  kCompletions,
  kFullTexts,  // the same, and prompt_labels: the labels of the other tokens of the chosen text
  // The full texts: input_ids, document_ids, pooled_tokens (the places of their last tokens) and margins.
  kScores
};

// In addition, sample_numbers.
std::vector<SampleEntry> preference_entries(PairForm form, std::int64_t sequence_length);

// Every line that is not empty is an object with `chosen` and `rejected`, in one of three forms: texts with a text
// `prompt`; lists of messages with a list `prompt`; or lists of messages that begin with the prompt. A line is a
// sample: the prompt with the chosen completion is document 0, the prompt with the rejected one is document 1, and
// padding is document 2. The last message of a list is the completion. The tokens of both documents must fit into
// rules.sequence_length. kScores: the line may have a number `margin`, else 0. With rules.images, prompts may have
// images and the data set is that of with_images(): the images of the chosen text and then those of the rejected one.
//
// `held_out`: sample i has the number -1 - i, and else i. `place` names the files in errors. Throws InputError with
// file and line for the first bad line if rules.bad_lines is stop (otherwise they are left out), and if no line is
// left.
std::unique_ptr<Dataset> open_preference_lines(const std::vector<std::filesystem::path>& files, const LineRules& rules,
                                               PairForm form, bool held_out, const std::string& place,
                                               const OpenProgress& progress = no_progress);

}  // namespace gantry
