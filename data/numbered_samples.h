// Samples that know their number, for losses that look up what was computed for a sample.
#pragma once

#include <string>

#include "gantry/data/dataset.h"

namespace gantry {

// The entry that has the number of each sample: int64 [samples].
inline constexpr const char* kSampleNumbers = "sample_numbers";

// The same samples with kSampleNumbers. Sample i of the data sets one after the other has the number i, and -1 - i if
// they are `held_out`. Throws ConfigError, naming `key`, for samples whose shapes differ, and when they are opened for
// samples that differ in each pass.
SampleSource numbered_samples(SampleSource source, bool held_out, const std::string& key);

// The samples of all data sets of the source once, in the order of their numbers: one data set.
SampleSource samples_in_order(const SampleSource& source);

}  // namespace gantry
