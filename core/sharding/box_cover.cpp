#include "gantry/core/sharding/box_cover.h"

#include <algorithm>

namespace gantry {
namespace {

// A position at which the range of a box begins or ends along a dim.
struct Border {
  std::int64_t at;
  bool begins;
  const Box* box;
};

std::vector<Border> borders_of(const std::vector<const Box*>& boxes, std::size_t dim) {
  std::vector<Border> borders;
  for (const Box* box : boxes)
    for (const Range& range : box->dims[dim]) {
      if (range.size() <= 0) continue;
      borders.push_back({range.begin, true, box});
      borders.push_back({range.end, false, box});
    }
  std::sort(borders.begin(), borders.end(), [](const Border& a, const Border& b) { return a.at < b.at; });
  return borders;
}

}  // namespace

Covering BoxCover::of(const std::vector<const Box*>& boxes) {
  covering_ = {};
  if (elements_of(global_) > 0) visit(boxes, 0);
  return covering_;
}

// The boxes are those that contain elements at the chosen positions of the previous dims.
void BoxCover::visit(const std::vector<const Box*>& boxes, std::size_t dim) {
  steps_left_ -= static_cast<std::int64_t>(boxes.size());
  if (steps_left_ < 0) {
    covering_.is_known = false;
    return;
  }
  if (boxes.empty()) {
    covering_.has_hole = true;
    return;
  }
  if (dim == global_.size()) {
    if (boxes.size() > 1) covering_.has_overlap = true;
    return;
  }
  const auto borders = borders_of(boxes, dim);
  std::vector<const Box*> here;
  std::int64_t covered = 0;
  for (std::size_t i = 0; i < borders.size() && covering_.is_known; ++i) {
    const Border& border = borders[i];
    if (border.at > covered) {
      visit(here, dim + 1);
      covered = border.at;
    }
    if (border.begins) {
      here.push_back(border.box);
    } else {
      here.erase(std::find(here.begin(), here.end(), border.box));
      steps_left_ -= static_cast<std::int64_t>(here.size());
    }
  }
  if (covered < global_[dim]) covering_.has_hole = true;
}

}  // namespace gantry
