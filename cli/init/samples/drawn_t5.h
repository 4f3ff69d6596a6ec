// Random words as bytes. The decoder is trained to write each word backwards.
#pragma once

#include <gantry/booster/gantry.h>

inline gantry::TensorDict drawn_samples(std::int64_t count) {
  constexpr std::int64_t kLetters = 8, kEnd = 1;  // the end of a sequence
  const torch::Tensor words = torch::randint('a', 'z' + 1, {count, kLetters}, torch::kInt64);
  const torch::Tensor end = torch::full({count, 1}, kEnd, torch::kInt64);
  return {{"input_ids", torch::cat({words, end}, 1)}, {"labels", torch::cat({words.flip(1), end}, 1)}};
}
