// Checks whether boxes cover a tensor and whether they overlap, dim by dim, between the positions where ranges begin or
// end. Internal to core/.
#pragma once

#include "gantry/core/slice.h"

namespace gantry {

class BoxCover {
 public:
  explicit BoxCover(const Shape& global) : global_(global) {}
  // Keeps a reference to the boxes. Aborts after a few seconds of work, which only hostile files need.
  Covering of(const std::vector<const Box*>& boxes);

 private:
  void visit(const std::vector<const Box*>& boxes, std::size_t dim);

  const Shape& global_;
  Covering covering_;
  std::int64_t steps_left_ = 20'000'000;
};

}  // namespace gantry
