// The contents of the files of a run's data and of its tokenizer, by which a resumed run finds that they have changed.
#pragma once

#include <vector>

#include "gantry/checkpoint/format/sampled_content.h"
#include "gantry/core/config.h"

namespace gantry {

// The content of data.path, or of each of data.sources. Throws InputError for a file that cannot be read.
std::vector<SampledContent> data_contents(const DataConfig& data);

// True if the file data.path begins with the bytes of `before`.
bool begins_with(const DataConfig& data, const SampledContent& before);

// The content of the files of the tokenizer and the chat template that the run's texts are encoded with: one element,
// or none if the data has no texts, or its tokens are bytes. Throws InputError for a file that cannot be read.
std::vector<SampledContent> tokenizer_contents(const Config& config);

}  // namespace gantry
