#include <algorithm>

#include <c10/util/strides.h>

#include "gantry/core/error.h"
#include "gantry/tensors/deferred_record.h"
#include "gantry/tensors/kernels/draw.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/philox.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry::deferred {
namespace {

std::string name_of(const Step& step) { return step.op.schema().name(); }

double number(const Step& step, std::size_t argument) {
  return std::get<c10::IValue>(step.arguments.at(argument)).toScalar().toDouble();
}

kernels::Drawn drawn_by(const Step& step, PhiloxKey key) {
  const std::string name = name_of(step);
  kernels::Drawn drawn{.a = number(step, 1), .seed = key.seed, .stream = key.stream};
  drawn.law = name == "aten::normal_"    ? kernels::Law::kNormal
              : name == "aten::uniform_" ? kernels::Law::kUniform
                                         : kernels::Law::kBernoulli;
  if (drawn.law != kernels::Law::kBernoulli) drawn.b = number(step, 2);
  return drawn;
}

Slice kept_of(const Record& record) { return apply_shards(record.full.sizes, record.shards); }

// Draws each block of the part. It recurses over the dims, so that a block is a single range in each dim.
void draw_ranges(const kernels::Drawn& drawn, const Box& box, std::size_t dim, const torch::Tensor& part,
                 std::int64_t first, at::IntArrayRef in_full) {
  if (dim == box.dims.size()) return kernels::draw(part, drawn, first, in_full);
  std::int64_t offset = 0;
  for (const Range& range : box.dims[dim]) {
    draw_ranges(drawn, box, dim + 1, part.narrow(static_cast<std::int64_t>(dim), offset, range.size()),
                first + range.begin * in_full[dim], in_full);
    offset += range.size();
  }
}

// Draws directly into the part. The value of an element depends only on its index in the full tensor.
void draw_part(const kernels::Drawn& drawn, const Record& record, const torch::Tensor& part) {
  const Slice kept = kept_of(record);
  const auto strides = c10::contiguous_strides(record.full.sizes);
  for (std::size_t box = 0; box < kept.boxes.size(); ++box)
    draw_ranges(drawn, kept.boxes[box], 0, box_view(part, kept, box), 0, strides);
}

bool is_full(const Argument& argument, const Record& record) {
  const auto* geometry = std::get_if<Geometry>(&argument);
  return geometry && geometry->sizes == record.full.sizes && geometry->strides == record.full.strides &&
         geometry->offset == record.full.offset;
}

bool has_only_scalars(const Step& step) {
  return std::all_of(step.arguments.begin() + 1, step.arguments.end(), [](const Argument& argument) {
    const auto* value = std::get_if<c10::IValue>(&argument);
    return value && !value->isTensor();
  });
}

// True if the step computes each element from this element alone, so that it can run on a part.
bool is_elementwise(const Step& step) {
  static const std::vector<std::string> kNames = {"aten::mul_",   "aten::add_",  "aten::sub_", "aten::div_",
                                                  "aten::clamp_", "aten::zero_", "aten::fill_"};
  return std::find(kNames.begin(), kNames.end(), name_of(step)) != kNames.end() && has_only_scalars(step);
}

void run_step(const Step& step, const std::function<torch::Tensor(const Geometry&)>& tensor_at) {
  torch::jit::Stack stack;
  for (const auto& argument : step.arguments) {
    if (const auto* geometry = std::get_if<Geometry>(&argument)) {
      stack.emplace_back(tensor_at(*geometry));
    } else {
      stack.push_back(std::get<c10::IValue>(argument));
    }
  }
  step.op.callBoxed(&stack);
}

// The first step from which the part can be computed alone, or steps.size() if the full tensor is needed.
std::size_t first_direct_step(const Record& record) {
  std::size_t first = record.steps.size();
  for (std::size_t i = record.steps.size(); i-- > 0;) {
    const Step& step = record.steps[i];
    if (!is_full(step.arguments[0], record)) break;
    if (overwrites_everything(name_of(step)) && has_only_scalars(step)) return i;
    if (!is_elementwise(step)) break;
  }
  return first;
}

void replay_full(const Record& record, torch::Tensor& target, const std::string& global_name, std::uint64_t seed) {
  torch::Tensor memory =
      torch::zeros({record.full.offset + elements_of(record.full.sizes)}, target.options().requires_grad(false));
  auto tensor_at = [&](const Geometry& geometry) {
    return memory.as_strided(geometry.sizes, geometry.strides, geometry.offset);
  };
  torch::Tensor full = tensor_at(record.full);
  if (record.base.defined()) full.copy_(record.base);
  for (std::size_t i = 0; i < record.steps.size(); ++i) {
    const Step& step = record.steps[i];
    if (is_random(name_of(step))) {
      torch::Tensor written = tensor_at(std::get<Geometry>(step.arguments[0]));
      kernels::draw(written, drawn_by(step, {seed, philox_stream(global_name, i)}), 0,
                    c10::contiguous_strides(written.sizes()));
    } else {
      run_step(step, tensor_at);
    }
  }
  copy_common(target, kept_of(record), full, full_slice(record.full.sizes));
}

}  // namespace

bool is_random(const std::string& op) {
  return op == "aten::uniform_" || op == "aten::normal_" || op == "aten::bernoulli_";
}

bool overwrites_everything(const std::string& op) {
  return op == "aten::uniform_" || op == "aten::normal_" || op == "aten::fill_" || op == "aten::zero_";
}

void replay(const Record& record, torch::Tensor& target, const std::string& global_name, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const std::size_t first = first_direct_step(record);
  if (first == record.steps.size() && (!record.steps.empty() || record.base.defined())) {
    // Steps on the full tensor may read tensors on the host.
    torch::Tensor here = target.is_cpu() ? target : torch::empty(target.sizes(), target.options().device(torch::kCPU));
    replay_full(record, here, global_name, seed);
    if (!target.is_cpu()) target.copy_(here);
    return;
  }
  for (std::size_t i = first; i < record.steps.size(); ++i) {
    const Step& step = record.steps[i];
    if (is_random(name_of(step))) {
      draw_part(drawn_by(step, {seed, philox_stream(global_name, i)}), record, target);
    } else {
      run_step(step, [&](const Geometry&) { return target; });
    }
  }
}

}  // namespace gantry::deferred
