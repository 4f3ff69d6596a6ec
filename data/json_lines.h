// Lines of JSON to fine-tune on: texts, prompts with completions, or chats, packed into samples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/data/line_encoder.h"

namespace gantry {

// Every line of the files that is not empty is an object with a string `text`; with strings `prompt` and `completion`,
// of which the completion alone is trained on; or with `messages` (and `tools`), of which what the assistant says is
// (all of both, where rules.loss_on is all). Each is a document: its tokens, and the tokenizer's end token where it has
// one and no chat template writes the end. Documents are packed in their order, as many as fit whole into a sample, and
// don't see each other (document_ids); padding is a document of its own.
//
// With rules.images, contents of messages may have images. The data set is a SampleDataset: a sample also has the
// entries of its images, as processor_entries() makes them. Images are read when the files are opened, for their sizes
// and faults, and again with each sample.
//
// With rules.target_length a line is a sample of its own: input_ids and attention_mask [sequence_length] of the prompt,
// labels [target_length] of the completion.
//
// All lines are encoded once when the files are opened, by all cores (encoding_cache.h). The ranks of a process share
// the tokens.
//
// `place` names the files in errors. InputError with file and line for the first bad line where rules.bad_lines is
// stop, else bad ones are left out; for a token outside the vocabulary; and where no line is left.
std::unique_ptr<Dataset> open_json_lines(const std::vector<std::filesystem::path>& files, const LineRules& rules,
                                         const std::string& place, const OpenProgress& progress = no_progress);

}  // namespace gantry
