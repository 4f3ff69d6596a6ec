// Spectrograms of four notes in sequence. The decoder is trained to predict the notes as tokens.
#pragma once

#include <gantry/booster/gantry.h>

inline gantry::TensorDict drawn_samples(std::int64_t count) {
  constexpr std::int64_t kNotes = 4, kStepsOfNote = 8, kPitches = 12, kFirst = 3, kEnd = 2;
  const torch::Tensor notes = torch::randint(kPitches, {count, kNotes}, torch::kInt64);
  const torch::Tensor sound = torch::one_hot(notes, kPitches).to(torch::kFloat32).repeat_interleave(kStepsOfNote, 1);
  const torch::Tensor features = sound.transpose(1, 2) + 0.1 * torch::randn({count, kPitches, kNotes * kStepsOfNote});
  const torch::Tensor end = torch::full({count, 1}, kEnd, torch::kInt64);
  return {{"input_features", features.contiguous()}, {"labels", torch::cat({notes + kFirst, end}, 1)}};
}
