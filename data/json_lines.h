// Lines of JSON to fine-tune on: texts, or prompts with completions, packed into samples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gantry/data/dataset.h"

namespace gantry {

// Every line of the files that is not empty is an object with a string `text`, or with strings `prompt` and
// `completion`, of which the completion alone is trained on. Each is a document: its tokens, and the tokenizer's end
// token where it has one. Documents are packed in their order, as many as fit whole into a sample, and don't see each
// other (document_ids); padding is a document of its own. The ranks of one process share what was encoded. `place`
// names the files in errors. InputError with file and line for what is no such object, for a document that is longer
// than a sample, for one of which nothing would be trained, and for a token outside 0 .. vocabulary_size - 1; for more
// than 1 GiB of text.
std::unique_ptr<Dataset> open_json_lines(const std::vector<std::filesystem::path>& files, const std::string& tokenizer,
                                         std::int64_t sequence_length, std::int64_t vocabulary_size,
                                         const std::string& place);

}  // namespace gantry
