#include "gantry/generation/image_format.h"

namespace gantry {
namespace {

PatchSizes patch_sizes(const models::VisionSpec& vision) {
  if (vision.grid_tower)
    return {.kind = ProcessorKind::kGrid,
            .patch = vision.patch,
            .merge = vision.grid_tower->merge,
            .frames = vision.grid_tower->frames};
  if (vision.pixtral) return {.kind = ProcessorKind::kPixtral, .patch = vision.patch, .merge = vision.pixtral->merge};
  return {.size = vision.image_size,
          .is_clip = vision.projector == models::VisionSpec::Projector::kMlp,
          .patch = vision.patch};
}

ImageMarks marks_of(const models::VisionSpec& vision) {
  if (vision.grid_tower) return {.mark = "<|image_pad|>", .token = "<|image_pad|>"};
  if (vision.pixtral) return {.mark = "[IMG]", .token = "[IMG]", .row_end = "[IMG_BREAK]", .end = "[IMG_END]"};
  if (vision.projector == models::VisionSpec::Projector::kMlp) return {.mark = "<image>", .token = "<image>"};
  return {.mark = "<start_of_image>",
          .begin = "\n\n<start_of_image>",
          .token = "<image_soft_token>",
          .end = "<end_of_image>\n\n"};
}

}  // namespace

ImageFormat image_format_of(const models::VisionSpec& vision) {
  return {.sizes = patch_sizes(vision),
          .marks = marks_of(vision),
          .token = vision.image_token,
          .features = vision.features()};
}

}  // namespace gantry
