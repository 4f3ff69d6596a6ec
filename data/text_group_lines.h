// Lines of JSON with texts that belong together, for sentence embeddings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/data/surrounded_text.h"

namespace gantry {

struct TextGroupRules {
  SurroundedTextRules text;
  std::int64_t texts = 2;  // in each line
};

// input_ids and attention_mask [texts, sequence_length].
std::vector<SampleEntry> text_group_entries(const TextGroupRules& rules);

// Each line that is not empty is an object with the strings `anchor` and `positive`, and perhaps `negative`, a string
// or a list of strings: hard negatives. It is a sample of these texts in this order. The lines are encoded once
// (encoding_cache.h). `place` names the files in errors. If rules.text.bad_lines is stop, throws InputError with file
// and line for the first bad line, such as one with another number of texts. Throws it also for a token outside the
// vocabulary, and if no line is left.
std::unique_ptr<Dataset> open_text_group_lines(const std::vector<std::filesystem::path>& files,
                                               const TextGroupRules& rules, const std::string& place,
                                               const OpenProgress& progress = no_progress);

// The number of texts of the first line; 2 if it is not such an object, which opening the lines reports.
std::int64_t texts_of_first_line(const std::vector<std::filesystem::path>& files);

}  // namespace gantry
