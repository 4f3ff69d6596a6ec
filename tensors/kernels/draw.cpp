#include "gantry/tensors/kernels/draw.h"

#include <algorithm>
#include <vector>

#include <torch/library.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/philox.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::kernels {
namespace {

// Elements first .. first + count - 1 of a law's stream, equal to those of draw_element().
void draw_run(const Drawn& drawn, std::uint64_t first, std::int64_t count, double* out) {
  const PhiloxKey key{drawn.seed, drawn.stream};
  if (drawn.law == Law::kNormal) {
    philox_normal(key, first, count, out);
    for (std::int64_t i = 0; i < count; ++i) out[i] = drawn.a + drawn.b * out[i];
    return;
  }
  philox_uniform(key, first, count, out);
  if (drawn.law == Law::kBernoulli) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = out[i] < drawn.a ? 1 : 0;
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) out[i] = drawn.a + (drawn.b - drawn.a) * out[i];
}

constexpr std::int64_t kPiece = 4096;

// A run of elements that follow each other in the full tensor, `stride` apart in memory.
template <class T>
void fill_run(const Drawn& drawn, std::uint64_t first, std::int64_t count, std::int64_t stride, T* out) {
  if (drawn.law == Law::kMask) {
    std::uint32_t words[kPiece];
    const T kept = static_cast<T>(drawn.b);
    const auto threshold = static_cast<std::uint32_t>(drawn.a * 4294967295.0);
    for (std::int64_t done = 0; done < count; done += kPiece) {
      const std::int64_t n = std::min(kPiece, count - done);
      philox_words({drawn.seed, drawn.stream}, first + done, n, words);
      T* const to = out + done * stride;
      if (stride == 1)
        for (std::int64_t i = 0; i < n; ++i) to[i] = words[i] >= threshold ? kept : T(0);
      else
        for (std::int64_t i = 0; i < n; ++i) to[i * stride] = words[i] >= threshold ? kept : T(0);
    }
    return;
  }
  double numbers[kPiece];
  for (std::int64_t done = 0; done < count; done += kPiece) {
    const std::int64_t n = std::min(kPiece, count - done);
    draw_run(drawn, first + done, n, numbers);
    for (std::int64_t i = 0; i < n; ++i) out[(done + i) * stride] = static_cast<T>(numbers[i]);
  }
}

at::Tensor& draw_on_cpu(at::Tensor& out, at::IntArrayRef in_full, std::int64_t first, std::int64_t law, double a,
                        double b, std::int64_t seed, std::int64_t stream) {
  const Box box = box_of(out, first, in_full);
  const Drawn drawn{static_cast<Law>(law), a, b, static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(stream)};
  // The innermost dim is a run unless its elements are not adjacent in the full tensor.
  const int last = box.dims - 1;
  const bool has_runs = last >= 0 && box.in_full[last] == 1;
  const std::int64_t run = has_runs ? box.size[last] : 1, stride = has_runs ? box.in_memory[last] : 1;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "gantry::draw_", [&] {
    auto* memory = out.data_ptr<scalar_t>();
    for (std::int64_t done = 0; done < out.numel(); done += run) {
      const Place place = place_in(box, done);
      fill_run(drawn, place.in_full, run, stride, memory + place.in_memory);
    }
  });
  return out;
}

at::Tensor& draw_nothing(at::Tensor& out, at::IntArrayRef, std::int64_t, std::int64_t, double, double, std::int64_t,
                         std::int64_t) {
  return out;
}

}  // namespace

Box box_of(const torch::Tensor& out, std::int64_t first, at::IntArrayRef in_full) {
  Box box;
  box.first = first;
  for (std::int64_t dim = 0; dim < out.dim(); ++dim) {
    const std::int64_t size = out.size(dim), memory = out.stride(dim), full = in_full[dim];
    if (size == 1) continue;
    const int last = box.dims - 1;
    if (last >= 0 && box.in_memory[last] == size * memory && box.in_full[last] == size * full) {
      box.size[last] *= size;
      box.in_memory[last] = memory;
      box.in_full[last] = full;
      continue;
    }
    if (box.dims == Box::kMaxDims)
      throw UsageError({"random numbers", "the tensor " + describe(out) + " is sharded along too many dimensions",
                        "at most " + std::to_string(Box::kMaxDims) + " dimensions that are not contiguous",
                        "fill the full tensor, or flatten dimensions"});
    box.size[box.dims] = size;
    box.in_memory[box.dims] = memory;
    box.in_full[box.dims++] = full;
  }
  return box;
}

void draw(torch::Tensor out, const Drawn& drawn, std::int64_t first, at::IntArrayRef in_full) {
  using Call =
      at::Tensor&(at::Tensor&, at::IntArrayRef, std::int64_t, std::int64_t, double, double, std::int64_t, std::int64_t);
  static const auto kOperator = c10::Dispatcher::singleton().findSchemaOrThrow("gantry::draw_", "").typed<Call>();
  if (out.numel() == 0) return;
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  kOperator.call(out, in_full, first, static_cast<std::int64_t>(drawn.law), drawn.a, drawn.b,
                 static_cast<std::int64_t>(drawn.seed), static_cast<std::int64_t>(drawn.stream));
}

TORCH_LIBRARY_FRAGMENT(gantry, library) {
  library.def(
      "draw_(Tensor(a!) out, int[] in_whole, int first, int law, float a, float b, int seed, int stream) -> "
      "Tensor(a!)");
}

TORCH_LIBRARY_IMPL(gantry, CPU, library) { library.impl("draw_", &draw_on_cpu); }
TORCH_LIBRARY_IMPL(gantry, Meta, library) { library.impl("draw_", &draw_nothing); }

}  // namespace gantry::kernels
