// The inputs of a case's model in each step.
#pragma once

#include "model_case.h"

namespace gantry::testing {

// Sizes of the audio and image inputs.
inline constexpr std::int64_t kMelBins = 3, kSoundTokens = 5;
inline constexpr std::int64_t kImage = 7;  // 9 patches of 2 x 2, without the last row and column

inline constexpr std::int64_t kPictureSide = 4, kPictureTokens = 4;

// Decoders with an image encoder.
bool reads_pictures(const std::string& family);

// Models with a tower for images and one for texts.
bool is_contrastive(const std::string& family);

// The batch of a replica. Removes the image inputs if no sample has an image token.
TensorDict without_unused_pictures(const ModelCase& what, TensorDict batch);

// Encoders of text, and encoder-decoders of text.
bool is_bert(const std::string& family);
bool is_text_pair(const std::string& family);

// The full batch of a step, the same in every layout. A linear congruential generator makes the values, so
// that the state of LibTorch's generators does not matter.
TensorDict full_batch(const ModelCase& what, std::size_t step);

}  // namespace gantry::testing
