#include "gantry/trainer/moments.h"

#include <cmath>

namespace gantry {

Moments merged(const Moments& a, const Moments& b) {
  const double count = a.count + b.count;
  if (a.count == 0 || b.count == 0) return a.count == 0 ? b : a;
  const double x = b.x - a.x, y = b.y - a.y, share = b.count / count, weight = a.count * share;
  return {count,
          a.x + x * share,
          a.y + y * share,
          a.xx + b.xx + x * x * weight,
          a.yy + b.yy + y * y * weight,
          a.xy + b.xy + x * y * weight};
}

double correlation(const Moments& of) {
  return of.xx <= 0 || of.yy <= 0 ? 0 : of.xy / std::sqrt(of.xx) / std::sqrt(of.yy);
}

}  // namespace gantry
