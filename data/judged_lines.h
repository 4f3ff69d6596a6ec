// Lines of JSON with a prompt, a completion, and a label that says whether the completion is desirable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/data/line_encoder.h"

namespace gantry {

// input_ids, labels (aligned; kNotCounted except for the completion), kl_input_ids and kl_labels, desirable (0 or 1)
// and sample_numbers.
std::vector<SampleEntry> judged_entries(std::int64_t sequence_length);

// Every line that is not empty is an object with `label`, true or false, and `prompt` and `completion`, both texts or
// both lists of messages. A line is a sample. Its kl_ entries have its prompt with the completion of the line before,
// truncated to rules.sequence_length tokens; the first line takes the completion of the last one. The tokens of a line
// without the last one must fit into rules.sequence_length. With rules.images, prompts may have images, and the data
// set is that of with_images().
//
// `held_out`: sample i has the number -1 - i, and else i. `place` names the files in errors. Throws InputError with
// file and line for the first bad line if rules.bad_lines is stop (otherwise they are left out), and if fewer than two
// lines are left.
std::unique_ptr<Dataset> open_judged_lines(const std::vector<std::filesystem::path>& files, const LineRules& rules,
                                           bool held_out, const std::string& place,
                                           const OpenProgress& progress = no_progress);

}  // namespace gantry
