// Noisy images of stripes. The four classes are the directions of the stripes. For image files set
// data: {format: images, path: DIRECTORY}.
#pragma once

#include <gantry/booster/gantry.h>

inline gantry::TensorDict drawn_samples(std::int64_t count) {
  constexpr std::int64_t kSize = 16, kColours = 3, kClasses = 4;
  const torch::Tensor labels = torch::randint(kClasses, {count}, torch::kInt64);
  const torch::Tensor place = torch::arange(kSize, torch::kFloat32), x = place.view({1, kSize}),
                      y = place.view({kSize, 1});
  const torch::Tensor ways = torch::stack({x + 0 * y, y + 0 * x, x + y, x - y});
  const torch::Tensor moved = ways.index_select(0, labels) + torch::rand({count, 1, 1}) * kSize;
  const torch::Tensor stripes = moved.sin().unsqueeze(1).repeat({1, kColours, 1, 1});
  return {{"pixel_values", stripes + 0.5 * torch::randn_like(stripes)}, {"labels", labels}};
}
