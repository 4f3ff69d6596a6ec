// Sums as text (12+34=046) in which some bytes are masked. The model is trained to predict the masked bytes.
#pragma once

#include <gantry/booster/gantry.h>

inline gantry::TensorDict drawn_samples(std::int64_t count) {
  constexpr std::int64_t kSums = 4, kHidden = 256, kNotCounted = -100;
  const torch::Tensor terms = torch::randint(0, 100, {count, kSums, 2}, torch::kInt64);
  const torch::Tensor one = terms.select(2, 0), other = terms.select(2, 1), sum = one + other;
  std::vector<torch::Tensor> columns;
  const auto add_digits = [&](const torch::Tensor& number, std::int64_t most) {
    for (std::int64_t place = most; place > 0; place /= 10)
      columns.push_back(number.div(place, "floor").remainder(10) + '0');
  };
  add_digits(one, 10);
  columns.push_back(torch::full_like(one, '+'));
  add_digits(other, 10);
  columns.push_back(torch::full_like(one, '='));
  add_digits(sum, 100);
  columns.push_back(torch::full_like(one, ' '));
  const torch::Tensor text = torch::stack(columns, 2).flatten(1), hidden = torch::rand(text.sizes()) < 0.2;
  return {{"input_ids", text.masked_fill(hidden, kHidden)}, {"labels", text.masked_fill(~hidden, kNotCounted)}};
}
