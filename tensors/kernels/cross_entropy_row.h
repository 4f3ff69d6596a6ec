// The computations of a cross entropy on one row of logits, for host and device. A thread takes the columns
// begin, begin + step, ... of a row. T is the type of the logits, and A the type of the arithmetic.
#pragma once

#include <cmath>
#include <cstdint>

#include "gantry/tensors/kernels/host_device.h"

namespace gantry::kernels {

// NaN if one of the two is NaN.
template <class A>
GANTRY_HOST_DEVICE A larger(A a, A b) {
  return a < b || b != b ? b : a;
}

// -infinity without columns.
template <class A, class T>
GANTRY_HOST_DEVICE A row_maximum(const T* row, std::int64_t width, std::int64_t begin, std::int64_t step) {
  A largest = static_cast<A>(-INFINITY);
  for (std::int64_t column = begin; column < width; column += step)
    largest = larger(largest, static_cast<A>(row[column]));
  return largest;
}

// From the differences between logits and the row's largest one: the sum of their exponentials, the label's
// difference, and the sum of the differences.
template <class A>
struct RowSums {
  A exponentials = 0, label = 0, all = 0;
};

// `label`: a column, or -1 if the label is not in this row.
template <class A, class T>
GANTRY_HOST_DEVICE RowSums<A> row_sums(const T* row, std::int64_t width, std::int64_t begin, std::int64_t step,
                                       A largest, std::int64_t label) {
  RowSums<A> sums;
  for (std::int64_t column = begin; column < width; column += step) {
    const A logit = static_cast<A>(row[column]) - largest;
    sums.exponentials += std::exp(logit);
    sums.all += logit;
    if (column == label) sums.label = logit;
  }
  return sums;
}

// The terms of the gradient of a row's logits.
template <class A>
struct RowGradient {
  A largest = 0, total = 1;    // the largest logit of the full row, and the sum of exponentials
  A weight = 1;                // factor of the probabilities
  A of_label = 1, of_all = 0;  // subtracted from the label's column, and from each column
  A scale = 1;                 // the loss's gradient; 0 for a row that does not count
  std::int64_t label = -1;
};

template <class A>
GANTRY_HOST_DEVICE A gradient_of(A logit, std::int64_t column, const RowGradient<A>& row) {
  const A probability = std::exp(logit - row.largest) / row.total;
  const A taken = row.of_all + (column == row.label ? row.of_label : A(0));
  return (probability * row.weight - taken) * row.scale;
}

}  // namespace gantry::kernels
