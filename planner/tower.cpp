#include "gantry/planner/tower.h"

#include <algorithm>

#include "gantry/models/described/vision_modules.h"

namespace gantry::planner {
namespace {

using models::NormSpec;
using models::VisionSpec;

// The towers for images of any size have the layers of language models: RMS norms, rotary embeddings and a gate.
bool has_any_size(const VisionSpec& vision) { return vision.grid_tower || vision.pixtral; }

NormSpec tower_norm(const VisionSpec& vision) {
  return {.kind = has_any_size(vision) ? NormSpec::Kind::kRms : NormSpec::Kind::kLayer};
}

models::LayerSpec tower_layer(const VisionSpec& vision) {
  const models::TowerSpec& tower = vision.tower;
  const bool any_size = has_any_size(vision), bias = !vision.pixtral;
  models::LayerSpec layer;
  layer.input = layer.before_mlp = tower_norm(vision);
  models::AttentionSpec& attention = layer.attention;
  attention.heads = attention.key_heads = tower.heads;
  attention.head_size = tower.head_size();
  if (vision.grid_tower) attention.rows = models::ProjectionRows::kSegments;
  attention.bias = attention.output_bias = bias;
  attention.rotary = any_size ? 0 : -1;
  layer.mlp = {.width = tower.width, .gated = any_size, .bias = bias, .activation = tower.activation};
  return layer;
}

// Images in place of samples, and patches in place of tokens.
struct TowerStep {
  Workload workload;
  Layout layout;
};

TowerStep tower_step(const Workload& workload, const Layout& layout) {
  const VisionSpec& vision = *workload.model.vision;
  const SampleImages each = sample_images(vision, workload.sequence);
  models::DecoderSpec tower;
  tower.hidden = vision.tower.hidden;
  tower.layers = {tower_layer(vision)};
  TowerStep step{.workload = {.model = std::move(tower),
                              .sequence = each.patches,
                              .precision = workload.precision,
                              .program = workload.program},
                 .layout = layout};
  step.workload.program.halves_causal = false;  // patches attend to all patches
  step.layout.context = 1;
  step.layout.sequence_parallel = false;
  step.layout.microbatch = static_cast<int>(layout.microbatch * each.images);
  return step;
}

void append(std::vector<Operation>& to, const std::vector<Operation>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

PartOperations joined(PartOperations part, const PartOperations& next) {
  append(part.forward, next.forward);
  append(part.input_gradient, next.input_gradient);
  append(part.weight_gradient, next.weight_gradient);
  part.kept += next.kept;
  part.working = std::max(part.working, next.working);
  return part;
}

// The norm after the layers, and the average of squares of patches.
PartOperations end_of_tower(const VisionSpec& vision, const TowerStep& step) {
  OperationBuilder builder(step.workload, step.layout);
  if (has_any_size(vision) || vision.final_norm) builder.norm(tower_norm(vision));
  const double values = builder.bytes() * builder.tokens() * as_double(vision.tower.hidden);
  const bool pools = !has_any_size(vision) && vision.projector == VisionSpec::Projector::kPooled;
  if (pools) builder.elementwise(values, values);
  if (vision.pixtral) builder.elementwise(2 * values, 2 * values);  // patches of a square become neighbours
  return builder.take();
}

// The products of a projector, with `rows` features.
class Projector {
 public:
  Projector(OperationBuilder& builder, double rows, int tensor) : builder_(builder), rows_(rows), tensor_(tensor) {}

  void product(std::int64_t in, std::int64_t out, bool bias = false) {
    builder_.product(rows_, as_double(in), as_double(out), bytes(as_double(in)), bias);
  }
  // Two linear layers with an activation between them, sharded over tensor ranks or replicated.
  void mlp(std::int64_t in, std::int64_t width, std::int64_t out, bool bias, const std::string& activation,
           bool is_sharded) {
    const double own = largest_part(width, is_sharded ? tensor_ : 1);
    if (is_sharded) builder_.enter_split();
    builder_.product(rows_, as_double(in), own, bytes(as_double(in)), bias);
    builder_.keep(bytes(own));
    builder_.elementwise(2 * bytes(own), 3 * bytes(own), activation);
    builder_.product(rows_, own, as_double(out), bytes(own), bias);
    if (is_sharded) builder_.leave_split();
  }
  void norm(std::int64_t columns) {
    const double values = bytes(as_double(columns));
    builder_.elementwise(2 * values, 3 * values, "rms_norm");
    builder_.keep(values);
  }

 private:
  double bytes(double columns) const { return builder_.bytes() * rows_ * columns; }

  OperationBuilder& builder_;
  double rows_;
  int tensor_;
};

void project(Projector projector, const VisionSpec& vision, std::int64_t hidden) {
  const std::int64_t size = vision.tower.hidden;
  if (vision.grid_tower) {
    const std::int64_t square = vision.grid_tower->merge * vision.grid_tower->merge * size;
    return projector.mlp(square, square, hidden, /*bias=*/true, "gelu", /*is_sharded=*/true);
  }
  if (vision.pixtral) {
    projector.product(vision.pixtral->merge * vision.pixtral->merge * size, size);
    return projector.mlp(size, hidden, hidden, vision.projector_bias, vision.projector_activation,
                         /*is_sharded=*/true);
  }
  if (vision.projector == VisionSpec::Projector::kMlp)
    return projector.mlp(size, hidden, hidden, vision.projector_bias, vision.projector_activation,
                         /*is_sharded=*/false);
  projector.norm(size);
  projector.product(size, hidden);
}

}  // namespace

SampleImages sample_images(const VisionSpec& vision, std::int64_t sequence) {
  if (has_any_size(vision))
    return {.patches = sequence * static_cast<std::int64_t>(models::patches_of_feature(vision)), .features = sequence};
  return {.images = std::max<std::int64_t>(1, sequence / vision.features()),
          .patches = vision.places(),
          .features = vision.features()};
}

double patch_numbers(const Workload& workload, const Layout& layout) {
  const VisionSpec& vision = *workload.model.vision;
  const SampleImages each = sample_images(vision, workload.sequence);
  return as_double(layout.microbatch * each.images * each.patches * vision.tower.hidden);
}

PartOperations tower_layer_operations(const Workload& workload, const Layout& layout) {
  const TowerStep step = tower_step(workload, layout);
  return layer_operations(step.workload, step.workload.model.layers.front(), step.layout);
}

PartOperations patch_operations(const Workload& workload, const Layout& layout) {
  const VisionSpec& vision = *workload.model.vision;
  const TowerStep step = tower_step(workload, layout);
  OperationBuilder pixels(step.workload, step.layout);
  const double numbers =
      as_double(vision.channels * vision.patch * vision.patch * (vision.grid_tower ? vision.grid_tower->frames : 1));
  const bool any_size = has_any_size(vision), bias = !any_size && !vision.class_token;
  const double hidden = as_double(vision.tower.hidden);
  pixels.product(pixels.tokens(), numbers, hidden, pixels.bytes() * pixels.tokens() * numbers, bias);
  PartOperations part = pixels.take();
  part.input_gradient.clear();  // pixels have no gradient
  OperationBuilder builder(step.workload, step.layout);
  const double values = builder.bytes() * builder.tokens() * hidden;
  if (!any_size) builder.elementwise(3 * values, values);  // adds positions
  if (vision.class_token || vision.pixtral) builder.norm(tower_norm(vision));
  return joined(std::move(part), builder.take());
}

PartOperations feature_operations(const Workload& workload, const Layout& layout) {
  const VisionSpec& vision = *workload.model.vision;
  const SampleImages each = sample_images(vision, workload.sequence);
  // A sample has the features of its images in place of its tokens.
  Workload features{.model = workload.model,
                    .sequence = each.images * each.features,
                    .precision = workload.precision,
                    .program = workload.program};
  Layout full = layout;
  full.context = 1;
  full.sequence_parallel = false;
  OperationBuilder builder(features, full);
  project({builder, builder.tokens(), layout.tensor}, vision, workload.model.hidden);
  OperationBuilder text(workload, layout);
  const double values = text.bytes() * text.tokens() * as_double(workload.model.hidden);
  text.elementwise(7 * values, 7 * values);  // a row of padding, the rows of image tokens, and the choice between both
  return joined(joined(end_of_tower(vision, tower_step(workload, layout)), builder.take()), text.take());
}

}  // namespace gantry::planner
