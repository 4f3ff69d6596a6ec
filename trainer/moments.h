// Counts, means and products of deviations of pairs of numbers, which are merged without loss of digits.
#pragma once

namespace gantry {

// The moments of samples (x, y). Sums of raw squares would lose the digits of a small spread around a large mean.
struct Moments {
  double count = 0;
  double x = 0, y = 0;            // means
  double xx = 0, yy = 0, xy = 0;  // sums of products of the deviations from the means
};

// The moments of the samples of both: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
// computing sample variances" (1979).
Moments merged(const Moments& a, const Moments& b);

// Pearson's correlation. 0 if all x or all y are equal.
double correlation(const Moments& of);

}  // namespace gantry
