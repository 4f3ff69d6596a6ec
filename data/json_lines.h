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

// Each line that is not empty is a JSON object. It has one of three forms.
// - {"text"}: all tokens are trained on.
// - {"prompt", "completion"}: only the completion is trained on.
// - {"messages"}, optionally with "tools": only the answers of the assistant are trained on.
// With rules.loss_on = all, prompts and other messages are trained on too.
//
// A line is a document: its tokens, followed by the tokenizer's end token if there is one and no chat
// template writes the end. Documents are packed in order, as many as completely fit into a sample. They do
// not attend to each other (document_ids). Padding has a document id of its own.
//
// With rules.images, messages may contain images. The data set is then a SampleDataset, whose samples also
// have the entries of their images (see processor_entries()). Images are read when the files are opened, to
// check them and to get their sizes, and again with each sample.
//
// With rules.target_length, each line is a separate sample: input_ids and attention_mask [sequence_length] of
// the prompt, and labels [target_length] of the completion.
//
// All lines are encoded once when the files are opened, on all cores (encoding_cache.h). The ranks of a
// process share the tokens.
//
// `place` names the files in errors. Throws InputError with file and line for the first bad line if
// rules.bad_lines is stop; otherwise bad lines are skipped. Also throws it for a token outside the
// vocabulary, and if no line is left.
std::unique_ptr<Dataset> open_json_lines(const std::vector<std::filesystem::path>& files, const LineRules& rules,
                                         const std::string& place, const OpenProgress& progress = no_progress);

}  // namespace gantry
