#include "gantry/tensors/kernels/rotate.h"

#include <type_traits>

#include <ATen/Parallel.h>
#include <torch/library.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::kernels {
namespace {

template <class A, class T>
void rotate_head(const T* in, T* out, const T* cosine, const T* sine, const RotatedHeads& heads) {
  const std::int64_t step = heads.adjacent ? 2 : 1, second = heads.adjacent ? 1 : heads.pairs;
  const A sign = heads.back ? A(-1) : A(1);
#pragma GCC ivdep  // the result overlaps nothing
  for (std::int64_t pair = 0; pair < heads.pairs; ++pair) {
    const std::int64_t at = pair * step;
    const FeaturePair<A> made = rotated<A>({static_cast<A>(in[at]), static_cast<A>(in[at + second])},
                                           static_cast<A>(cosine[pair]), sign * static_cast<A>(sine[pair]));
    out[at] = static_cast<T>(made.first);
    out[at + second] = static_cast<T>(made.second);
  }
  for (std::int64_t i = 2 * heads.pairs; i < 2 * heads.pairs + heads.rest; ++i) out[i] = in[i];
}

constexpr std::int64_t kTokensAtOnce = 32;  // for a thread, at least

template <class T>
void rotate_all(at::Tensor& out, const at::Tensor& in, const at::Tensor& cosine, const at::Tensor& sine,
                const RotatedHeads& heads) {
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const T *from = in.const_data_ptr<T>(), *cosines = cosine.const_data_ptr<T>(), *sines = sine.const_data_ptr<T>();
  T* const to = out.data_ptr<T>();
  at::parallel_for(0, heads.samples * heads.tokens, kTokensAtOnce, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t sample = i / heads.tokens, token = i % heads.tokens;
      const std::int64_t angle = sample * heads.angle_sample + token * heads.angle_token;
      const T* const in_token = from + sample * heads.input.sample + token * heads.input.token;
      T* const out_token = to + sample * heads.output.sample + token * heads.output.token;
      for (std::int64_t head = 0; head < heads.heads; ++head)
        rotate_head<A>(in_token + head * heads.input.head, out_token + head * heads.output.head, cosines + angle,
                       sines + angle, heads);
    }
  });
}

at::Tensor& rotate_on_cpu(at::Tensor& out, const at::Tensor& heads, const at::Tensor& cosine, const at::Tensor& sine,
                          bool adjacent, bool back) {
  const RotatedHeads where = rotated_heads(out, heads, cosine, adjacent, back);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, heads.scalar_type(), "rotate",
                                  [&] { rotate_all<scalar_t>(out, heads, cosine, sine, where); });
  return out;
}

// Tensors of the meta device have no elements.
at::Tensor& rotate_nothing(at::Tensor& out, const at::Tensor&, const at::Tensor&, const at::Tensor&, bool, bool) {
  return out;
}

bool has_close_features(const at::Tensor& tensor) { return tensor.size(-1) <= 1 || tensor.stride(-1) == 1; }

at::Tensor with_close_features(const at::Tensor& tensor) {
  return has_close_features(tensor) ? tensor : tensor.contiguous();
}

RotatedHeads::Strides strides_of(const at::Tensor& heads) {
  return {.sample = heads.stride(0), .head = heads.stride(1), .token = heads.stride(2)};
}

bool fit(const at::Tensor& heads, const at::Tensor& cosine, const at::Tensor& sine) {
  if (heads.dim() != 4 || (cosine.dim() != 2 && cosine.dim() != 4) || cosine.sizes() != sine.sizes()) return false;
  const bool by_sample = cosine.dim() == 4;
  return (!by_sample || ((cosine.size(0) == 1 || cosine.size(0) == heads.size(0)) && cosine.size(1) == 1)) &&
         cosine.size(-2) == heads.size(2) && 2 * cosine.size(-1) <= heads.size(3) &&
         cosine.scalar_type() == heads.scalar_type() && sine.scalar_type() == heads.scalar_type();
}

}  // namespace

RotatedHeads rotated_heads(const torch::Tensor& out, const torch::Tensor& heads, const torch::Tensor& cosine,
                           bool adjacent, bool back) {
  const bool by_sample = cosine.dim() == 4 && cosine.size(0) > 1;
  return {.samples = heads.size(0),
          .heads = heads.size(1),
          .tokens = heads.size(2),
          .pairs = cosine.size(-1),
          .rest = heads.size(3) - 2 * cosine.size(-1),
          .input = strides_of(heads),
          .output = strides_of(out),
          .angle_sample = by_sample ? cosine.stride(0) : 0,
          .angle_token = cosine.stride(-2),
          .adjacent = adjacent,
          .back = back};
}

torch::Tensor rotate(const torch::Tensor& heads, const torch::Tensor& cosine, const torch::Tensor& sine,
                     PairOrder order, Turn turn) {
  static const auto kOperator =
      c10::Dispatcher::singleton().findSchemaOrThrow("gantry::rotate_", "").typed<decltype(rotate_on_cpu)>();
  if (!fit(heads, cosine, sine))
    throw InternalError({"rotation of heads",
                         "heads " + describe(heads) + " with cosines " + describe(cosine) + " and sines " +
                             describe(sine) + " do not fit",
                         "heads [samples, heads, tokens, size], and a number for each token and pair of features", ""});
  const torch::NoGradGuard no_grad;
  const at::Tensor in = with_close_features(heads), of_cosine = cosine.contiguous(), of_sine = sine.contiguous();
  at::Tensor out = at::empty_like(in, in.options().requires_grad(false));
  if (out.numel() == 0) return out;
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  kOperator.call(out, in, of_cosine, of_sine, order == PairOrder::kAdjacent, turn == Turn::kBack);
  return out;
}

TORCH_LIBRARY_FRAGMENT(gantry, library) {
  library.def(
      "rotate_(Tensor(a!) out, Tensor heads, Tensor cosine, Tensor sine, bool adjacent, bool back) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(gantry, CPU, library) { library.impl("rotate_", &rotate_on_cpu); }
TORCH_LIBRARY_IMPL(gantry, Meta, library) { library.impl("rotate_", &rotate_nothing); }

}  // namespace gantry::kernels
