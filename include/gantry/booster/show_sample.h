// The tokens of one training sample, as the run sees them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/data/dataset.h"

namespace gantry {

struct ShownSample {
  std::string place;                // "run.yaml: sample 1", or FILE:LINE
  std::string tokenizer;            // as load_tokenizer() takes it
  std::vector<SampleToken> tokens;  // without padding
  std::vector<std::string> texts;   // one for each token, valid UTF-8
  std::string label = {};           // the label of labelled data
};

// Returns sample `row` (from 1) of the configured training data (of the first source), in the order of the files. The
// configuration must be resolved. Throws the errors of build_loader(), and InputError if there is no such row or the
// format has no tokens.
ShownSample show_sample(const Config& config, const std::string& place, std::int64_t row);

// Returns the sample of a line (from 1) of a file. A line of a *.jsonl file is read like data.format jsonl. A line of
// another file, or the whole file if `line` is 0, is a text. `config`: with the model, which must be resolved, or with
// data.tokenizer alone. Throws InputError with FILE:LINE for a line that cannot be used.
ShownSample show_line(const Config& config, const std::string& file, std::int64_t line);

// Describes the first sample of the configured training data in one line: counts, and the text around the first token
// with a loss. Tokens with a loss are between the brackets U+27E6 and U+27E7. Returns "" for formats other than text
// and jsonl. The configuration must be resolved.
std::string describe_first_sample(const Config& config);

}  // namespace gantry
