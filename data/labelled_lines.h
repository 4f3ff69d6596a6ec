// Lines of JSON with a text and its label, for models that classify texts (data.objective: labels).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/data/surrounded_text.h"

namespace gantry {

// The label of a text.
enum class LabelKind {
  kClass,    // a class: its number from 0, or its name
  kSeveral,  // several classes: a list of their names, or of 0 or 1 for each class; of one label also 0 or 1 alone
  kNumbers   // a number, or a list of numbers
};

struct LabelledRules {
  SurroundedTextRules text;
  LabelKind kind = LabelKind::kClass;
  std::int64_t labels = 0;           // logits of the model
  std::vector<std::string> classes;  // names by label; empty: labels are numbers
};

// input_ids, token_type_ids and attention_mask [sequence_length], and labels: int64 [] of a class, else float32
// [labels].
std::vector<SampleEntry> labelled_entries(const LabelledRules& rules);

// Each line that is not empty is an object with the string `text`, perhaps a second one `text_pair`, and `label`; it is
// a sample. The lines are encoded once (encoding_cache.h). `place` names the files in errors. Throws InputError with
// file and line for the first bad line if rules.text.bad_lines is stop, for a token outside the vocabulary, and if no
// line is left.
std::unique_ptr<Dataset> open_labelled_lines(const std::vector<std::filesystem::path>& files,
                                             const LabelledRules& rules, const std::string& place,
                                             const OpenProgress& progress = no_progress);

// The names of all classes in the files, in ascending order; empty if labels are numbers.
std::vector<std::string> label_names(const std::vector<std::filesystem::path>& files);

// True if the label of the first line is a list.
bool has_label_lists(const std::vector<std::filesystem::path>& files);

}  // namespace gantry
