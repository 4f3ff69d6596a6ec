#include <algorithm>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/tensors/deferred_record.h"
#include "gantry/tensors/philox.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry::deferred {
namespace {

std::string name_of(const Step& step) { return step.op.schema().name(); }

double number(const Step& step, std::size_t argument) {
  return std::get<c10::IValue>(step.arguments.at(argument)).toScalar().toDouble();
}

// Elements first .. first + count - 1 of a random step, into contiguous memory.
void draw(const Step& step, PhiloxKey key, std::uint64_t first, std::int64_t count, double* out) {
  const std::string name = name_of(step);
  const double a = number(step, 1);
  if (name == "aten::normal_") {
    const double deviation = number(step, 2);
    philox_normal(key, first, count, out);
    for (std::int64_t i = 0; i < count; ++i) out[i] = a + deviation * out[i];
    return;
  }
  philox_uniform(key, first, count, out);
  if (name == "aten::bernoulli_") {
    for (std::int64_t i = 0; i < count; ++i) out[i] = out[i] < a ? 1 : 0;
    return;
  }
  const double width = number(step, 2) - a;
  for (std::int64_t i = 0; i < count; ++i) out[i] = a + width * out[i];
}

Slice kept_of(const Record& record) { return apply_cuts(record.whole.sizes, record.cuts); }

// Draws straight into the part: element i of the whole is the same whoever draws it.
void draw_part(const Step& step, PhiloxKey key, const Record& record, torch::Tensor& part) {
  constexpr std::int64_t kPiece = 4096;
  std::vector<double> buffer(kPiece);
  torch::Tensor drawn = part.is_cpu() ? part : torch::empty(part.sizes(), part.options().device(torch::kCPU));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, part.scalar_type(), "deferred_init", [&] {
    auto* out = drawn.data_ptr<scalar_t>();
    visit_runs(kept_of(record), [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t done = 0; done < count; done += kPiece) {
        const std::int64_t n = std::min(kPiece, count - done);
        draw(step, key, static_cast<std::uint64_t>(first + done), n, buffer.data());
        for (std::int64_t i = 0; i < n; ++i) *out++ = static_cast<scalar_t>(buffer[i]);
      }
    });
  });
  if (!part.is_cpu()) part.copy_(drawn);
}

bool is_whole(const Argument& argument, const Record& record) {
  const auto* geometry = std::get_if<Geometry>(&argument);
  return geometry && geometry->sizes == record.whole.sizes && geometry->strides == record.whole.strides &&
         geometry->offset == record.whole.offset;
}

bool has_only_scalars(const Step& step) {
  return std::all_of(step.arguments.begin() + 1, step.arguments.end(), [](const Argument& argument) {
    const auto* value = std::get_if<c10::IValue>(&argument);
    return value && !value->isTensor();
  });
}

// Element by element, from the element alone, so that it can be done to a part.
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

// The first step from which the part alone can be made, or steps.size() if the whole is needed.
std::size_t first_direct_step(const Record& record) {
  std::size_t first = record.steps.size();
  for (std::size_t i = record.steps.size(); i-- > 0;) {
    const Step& step = record.steps[i];
    if (!is_whole(step.arguments[0], record)) break;
    if (overwrites_everything(name_of(step)) && has_only_scalars(step)) return i;
    if (!is_elementwise(step)) break;
  }
  return first;
}

void replay_whole(const Record& record, torch::Tensor& target, const std::string& global_name, std::uint64_t seed) {
  std::int64_t elements = 1;
  for (const auto size : record.whole.sizes) elements *= size;
  torch::Tensor memory = torch::zeros({record.whole.offset + elements}, target.options().requires_grad(false));
  auto tensor_at = [&](const Geometry& geometry) {
    return memory.as_strided(geometry.sizes, geometry.strides, geometry.offset);
  };
  torch::Tensor whole = tensor_at(record.whole);
  if (record.base.defined()) whole.copy_(record.base);
  for (std::size_t i = 0; i < record.steps.size(); ++i) {
    const Step& step = record.steps[i];
    if (is_random(name_of(step))) {
      torch::Tensor written = tensor_at(std::get<Geometry>(step.arguments[0]));
      torch::Tensor drawn = torch::empty(written.sizes(), torch::kFloat64);
      draw(step, {seed, philox_stream(global_name, i)}, 0, drawn.numel(), drawn.data_ptr<double>());
      written.copy_(drawn);
    } else {
      run_step(step, tensor_at);
    }
  }
  copy_common(target, kept_of(record), whole, whole_slice(record.whole.sizes));
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
  if (first == record.steps.size() && (!record.steps.empty() || record.base.defined()))
    return replay_whole(record, target, global_name, seed);
  for (std::size_t i = first; i < record.steps.size(); ++i) {
    const Step& step = record.steps[i];
    if (is_random(name_of(step))) {
      draw_part(step, {seed, philox_stream(global_name, i)}, record, target);
    } else {
      run_step(step, [&](const Geometry&) { return target; });
    }
  }
}

}  // namespace gantry::deferred
