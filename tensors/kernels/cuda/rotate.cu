// A block takes all heads of a token, which have the same angles. A thread takes several pairs of a head at a time.
#include <algorithm>
#include <cuda_runtime.h>
#include <iterator>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "gantry/tensors/kernels/cuda/launches.h"
#include "gantry/tensors/kernels/cuda/pack.h"

namespace gantry::kernels {
namespace {

constexpr int kWarp = 32, kMostThreads = 256;

// Pairs [first, first + kCount) of a head.
template <class A, int kCount, class T>
__device__ void rotate_pairs(const T* in, T* out, const T* cosine, const T* sine, const RotatedHeads& heads,
                             std::int64_t first) {
  using Few = Pack<T, kCount>;
  const std::int64_t one = heads.adjacent ? 2 * first : first,
                     other = heads.adjacent ? one + kCount : first + heads.pairs;
  const Few low = read_pack<T, kCount>(in + one), high = read_pack<T, kCount>(in + other);
  const Few cosines = read_pack<T, kCount>(cosine + first), sines = read_pack<T, kCount>(sine + first);
  Few new_low, new_high;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const A c = static_cast<A>(cosines.of[i]), s = static_cast<A>(sines.of[i]);
    FeaturePair<A> pair{static_cast<A>(low.of[i]), static_cast<A>(high.of[i])};
    if (heads.adjacent) {
      const int at = 2 * i;
      pair = {static_cast<A>(at < kCount ? low.of[at % kCount] : high.of[at % kCount]),
              static_cast<A>(at + 1 < kCount ? low.of[(at + 1) % kCount] : high.of[(at + 1) % kCount])};
    }
    const FeaturePair<A> made = rotated(pair, c, heads.back ? -s : s);
    if (!heads.adjacent) {
      new_low.of[i] = static_cast<T>(made.first);
      new_high.of[i] = static_cast<T>(made.second);
      continue;
    }
    const int at = 2 * i;
    (at < kCount ? new_low : new_high).of[at % kCount] = static_cast<T>(made.first);
    (at + 1 < kCount ? new_low : new_high).of[(at + 1) % kCount] = static_cast<T>(made.second);
  }
  write_pack<T, kCount>(out + one, new_low);
  write_pack<T, kCount>(out + other, new_high);
}

template <class A, int kCount, class T>
__global__ void rotate_kernel(T* out, const T* in, const T* cosine, const T* sine, RotatedHeads heads) {
  const std::int64_t sample = blockIdx.x / heads.tokens, token = blockIdx.x % heads.tokens;
  in += sample * heads.input.sample + token * heads.input.token;
  out += sample * heads.output.sample + token * heads.output.token;
  const std::int64_t angle = sample * heads.angle_sample + token * heads.angle_token;
  const int packs = static_cast<int>(heads.pairs / kCount), all = packs * static_cast<int>(heads.heads);
  for (int i = threadIdx.x; i < all; i += blockDim.x) {
    const int head = i / packs, pack = i % packs;
    rotate_pairs<A, kCount>(in + head * heads.input.head, out + head * heads.output.head, cosine + angle, sine + angle,
                            heads, static_cast<std::int64_t>(pack) * kCount);
  }
  const int rest = static_cast<int>(heads.rest), copied = rest * static_cast<int>(heads.heads);
  for (int i = threadIdx.x; i < copied; i += blockDim.x) {
    const std::int64_t head = i / rest, feature = 2 * heads.pairs + i % rest;
    out[head * heads.output.head + feature] = in[head * heads.input.head + feature];
  }
}

template <int kCount>
bool divides(const RotatedHeads& heads) {
  const std::int64_t all[] = {heads.input.sample,  heads.input.head,  heads.input.token,
                              heads.output.sample, heads.output.head, heads.output.token,
                              heads.angle_sample,  heads.angle_token, heads.pairs};
  return std::all_of(std::begin(all), std::end(all), [](std::int64_t each) { return each % kCount == 0; });
}

template <class A, int kCount, class T>
void launch_packs(void* out, const RotationOperands& from, const RotatedHeads& heads, cudaStream_t stream) {
  const std::int64_t work = heads.heads * std::max(heads.pairs / kCount, heads.rest);
  const auto threads =
      static_cast<unsigned>(std::clamp<std::int64_t>((work + kWarp - 1) / kWarp * kWarp, kWarp, kMostThreads));
  const auto blocks = static_cast<unsigned>(heads.samples * heads.tokens);
  rotate_kernel<A, kCount><<<blocks, threads, 0, stream>>>(static_cast<T*>(out), static_cast<const T*>(from.heads),
                                                           static_cast<const T*>(from.cosine),
                                                           static_cast<const T*>(from.sine), heads);
}

template <class A, class T>
const char* launch(void* out, const RotationOperands& from, const RotatedHeads& heads, void* stream) {
  constexpr int kCount = kPackElements<T>;
  const bool in_packs = divides<kCount>(heads) && begins_with_pack(out) && begins_with_pack(from.heads) &&
                        begins_with_pack(from.cosine) && begins_with_pack(from.sine);
  const auto on = static_cast<cudaStream_t>(stream);
  in_packs ? launch_packs<A, kCount, T>(out, from, heads, on) : launch_packs<A, 1, T>(out, from, heads, on);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

const char* launch_rotate(void* out, Element type, const RotationOperands& from, const RotatedHeads& heads,
                          void* stream) {
  switch (type) {
    case Element::kFloat32:
      return launch<float, float>(out, from, heads, stream);
    case Element::kFloat64:
      return launch<double, double>(out, from, heads, stream);
    case Element::kFloat16:
      return launch<float, c10::Half>(out, from, heads, stream);
    case Element::kBFloat16:
      return launch<float, c10::BFloat16>(out, from, heads, stream);
  }
  return "there is no kernel for this element type";
}

}  // namespace gantry::kernels
