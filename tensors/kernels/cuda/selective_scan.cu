// A block takes kScanBlock channels of a sample, with kStates threads for each of them. A thread has one number of the
// channel's state at a time: larger states are scanned kStates numbers after kStates numbers. Neighbouring threads have
// the numbers of one channel, and add up its outputs by shuffles.
#include <cuda_runtime.h>

#include "gantry/tensors/kernels/cuda/recurrence_launches.h"

namespace gantry::kernels {
namespace {

constexpr int kStates = 16, kThreads = kScanBlock * kStates, kWarps = kThreads / 32;
constexpr unsigned kAllThreads = 0xFFFFFFFF;

// The place of a thread in the tensors. Threads beyond the last channel or state compute with zeros and write nothing.
template <class A>
struct Place {
  std::int64_t sample, channel;
  int lane;  // index of the state
  bool has_channel;

  __device__ explicit Place(const ScanInputs<A>& of)
      : sample(blockIdx.y),
        channel(static_cast<std::int64_t>(blockIdx.x) * kScanBlock + threadIdx.x / kStates),
        lane(threadIdx.x % kStates),
        has_channel(channel < of.channels) {}

  __device__ std::int64_t of_token(const ScanInputs<A>& of, std::int64_t token) const {
    return (sample * of.tokens + token) * of.channels + channel;
  }
  // `leading`: the index of [states, channels] in the tensor.
  __device__ std::int64_t of_state(const ScanInputs<A>& of, std::int64_t leading, std::int64_t state) const {
    return (leading * of.states + state) * of.channels + channel;
  }
};

// The sum over the threads of a channel, for all of them.
template <class A>
__device__ A over_states(A value) {
  for (int half = kStates / 2; half > 0; half /= 2) value += __shfl_xor_sync(kAllThreads, value, half);
  return value;
}

// Reads memory that the kernel does not write.
template <class A>
__device__ A read_if(bool is_there, const A* from, std::int64_t at) {
  return is_there ? __ldg(from + at) : A(0);
}

template <class A>
__global__ void __launch_bounds__(kThreads) scan_kernel(ScanInputs<A> of, ScanResults<A> to) {
  const Place<A> place(of);
  const A skip = read_if(of.d && place.has_channel, of.d, place.channel);
  for (std::int64_t first = 0; first < of.states; first += kStates) {
    const std::int64_t n = first + place.lane;
    const bool is_there = place.has_channel && n < of.states;
    const A a = read_if(is_there, of.a, place.of_state(of, 0, n));
    A state = is_there ? to.state[place.of_state(of, place.sample, n)] : A(0);
#pragma unroll 4
    for (std::int64_t token = 0; token < of.tokens; ++token) {
      const std::int64_t at = place.of_token(of, token), pair = (place.sample * of.tokens + token) * of.states + n;
      if (is_there && token % kScanTokens == 0)
        to.borders[place.of_state(of, place.sample * of.pieces() + token / kScanTokens, n)] = state;
      const A x = read_if(place.has_channel, of.x, at), dt = read_if(place.has_channel, of.dt, at);
      const A b = read_if(is_there, of.b, pair), c = read_if(is_there, of.c, pair);
      if (of.starts_at(place.sample, token)) state = 0;
      state = scan_state(state, exp_element(dt * a), dt * x, b);
      const A out = over_states(state * c);
      if (place.has_channel && place.lane == 0) to.out[at] = (first == 0 ? skip * x : to.out[at]) + out;
    }
    if (is_there) to.state[place.of_state(of, place.sample, n)] = state;
  }
}

// The terms of b and c of some tokens, from each warp: sums over its two channels.
template <class A>
struct SharedTerms {
  static constexpr int kTokens = 8;
  A b[kTokens][kWarps][kStates], c[kTokens][kWarps][kStates];
};

// Adds up the terms of tokens `begin` to `begin + count - 1` over the warps, in their order.
template <class A>
__device__ void write_sums(const ScanInputs<A>& of, const ScanGradients<A>& to, const SharedTerms<A>& terms,
                           std::int64_t begin, int count, std::int64_t first) {
  __syncthreads();
  for (int i = threadIdx.x; i < count * kStates; i += kThreads) {
    const int token = i / kStates, lane = i % kStates;
    A of_b = 0, of_c = 0;
    for (int warp = 0; warp < kWarps; ++warp) {
      of_b += terms.b[token][warp][lane];
      of_c += terms.c[token][warp][lane];
    }
    const std::int64_t row = (static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * of.tokens + begin;
    if (first + lane >= of.states) continue;
    to.b[(row + token) * of.states + first + lane] = of_b;
    to.c[(row + token) * of.states + first + lane] = of_c;
  }
  __syncthreads();
}

// The values of a thread for its number of the state.
template <class A>
struct Gradient {
  A a, state;  // the factor a, and the gradient of the state after the tokens so far
  A to_a = 0, to_d = 0;
  A before[kScanTokens];  // the states before the tokens of a piece
};

// The states within a piece, computed again.
template <class A>
__device__ void scan_again(const ScanInputs<A>& of, const ScanGradients<A>& to, const Place<A>& place,
                           std::int64_t piece, std::int64_t n, bool is_there, Gradient<A>& own) {
  A state = read_if(is_there, to.borders, place.of_state(of, place.sample * of.pieces() + piece, n));
#pragma unroll 4
  for (int i = 0; i < kScanTokens; ++i) {
    const std::int64_t token = piece * kScanTokens + i;
    if (token >= of.tokens) break;
    const std::int64_t at = place.of_token(of, token);
    const A x = read_if(place.has_channel, of.x, at), dt = read_if(place.has_channel, of.dt, at);
    if (of.starts_at(place.sample, token)) state = 0;
    own.before[i] = state;
    state = scan_state(state, exp_element(dt * own.a), dt * x,
                       read_if(is_there, of.b, (place.sample * of.tokens + token) * of.states + n));
  }
}

template <class A>
__device__ void token_backward(const ScanInputs<A>& of, const ScanGradients<A>& to, const Place<A>& place,
                               std::int64_t token, std::int64_t n, bool is_there, Gradient<A>& own,
                               SharedTerms<A>& shared, int slot, A skip) {
  const std::int64_t at = place.of_token(of, token), pair = (place.sample * of.tokens + token) * of.states + n;
  const A x = read_if(place.has_channel, of.x, at), dt = read_if(place.has_channel, of.dt, at);
  const A of_out = read_if(place.has_channel, to.out, at);
  const ScanTerms<A> terms = scan_terms(own.state, of_out, own.before[token % kScanTokens], exp_element(dt * own.a),
                                        dt * x, read_if(is_there, of.b, pair), read_if(is_there, of.c, pair));
  own.state = of.starts_at(place.sample, token) ? A(0) : terms.before;
  own.to_a += terms.exponent * dt;
  own.to_d += of_out * x;
  const A to_written = over_states(terms.written), to_dt = over_states(terms.exponent * own.a) + to_written * x;
  if (place.has_channel && place.lane == 0) {
    to.x[at] = (n < kStates ? skip * of_out : to.x[at]) + to_written * dt;
    to.dt[at] = (n < kStates ? A(0) : to.dt[at]) + to_dt;
  }
  const A of_b = terms.b + __shfl_xor_sync(kAllThreads, terms.b, kStates);
  const A of_c = terms.c + __shfl_xor_sync(kAllThreads, terms.c, kStates);
  if (threadIdx.x % 32 >= kStates) return;
  shared.b[slot][threadIdx.x / 32][place.lane] = of_b;
  shared.c[slot][threadIdx.x / 32][place.lane] = of_c;
}

template <class A>
__global__ void __launch_bounds__(kThreads) scan_backward_kernel(ScanInputs<A> of, ScanGradients<A> to) {
  __shared__ SharedTerms<A> shared;
  constexpr int kAtOnce = SharedTerms<A>::kTokens;
  const Place<A> place(of);
  const A skip = read_if(of.d && place.has_channel, of.d, place.channel);
  for (std::int64_t first = 0; first < of.states; first += kStates) {
    const std::int64_t n = first + place.lane;
    const bool is_there = place.has_channel && n < of.states;
    Gradient<A> own;
    own.a = read_if(is_there, of.a, place.of_state(of, 0, n));
    own.state = is_there ? to.state[place.of_state(of, place.sample, n)] : A(0);
    for (std::int64_t piece = of.pieces() - 1; piece >= 0; --piece) {
      scan_again(of, to, place, piece, n, is_there, own);
      for (int part = kScanTokens / kAtOnce - 1; part >= 0; --part) {
        const std::int64_t begin = piece * kScanTokens + part * kAtOnce;
        const auto count = static_cast<int>(of.tokens - begin < kAtOnce ? of.tokens - begin : kAtOnce);
        if (count <= 0) continue;
        for (int i = count - 1; i >= 0; --i)
          token_backward(of, to, place, begin + i, n, is_there, own, shared, i, skip);
        write_sums(of, to, shared, begin, count, first);
      }
    }
    if (is_there) {
      to.a[place.of_state(of, place.sample, n)] = own.to_a;
      to.state[place.of_state(of, place.sample, n)] = own.state;
    }
    if (to.d && first == 0 && place.has_channel && place.lane == 0)
      to.d[place.sample * of.channels + place.channel] = own.to_d;
  }
}

template <class A>
dim3 blocks_of(const ScanInputs<A>& of) {
  return dim3(static_cast<unsigned>((of.channels + kScanBlock - 1) / kScanBlock), static_cast<unsigned>(of.samples));
}

const char* last_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

template <class A>
const char* launch_scan(const ScanInputs<A>& of, const ScanResults<A>& to, void* stream) {
  scan_kernel<A><<<blocks_of(of), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(of, to);
  return last_error();
}

template <class A>
const char* launch_scan_backward(const ScanInputs<A>& of, const ScanGradients<A>& to, void* stream) {
  scan_backward_kernel<A><<<blocks_of(of), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(of, to);
  return last_error();
}

}  // namespace

const char* launch_selective_scan(const ScanInputs<float>& of, const ScanResults<float>& to, void* stream) {
  return launch_scan(of, to, stream);
}
const char* launch_selective_scan(const ScanInputs<double>& of, const ScanResults<double>& to, void* stream) {
  return launch_scan(of, to, stream);
}
const char* launch_selective_scan_backward(const ScanInputs<float>& of, const ScanGradients<float>& to, void* stream) {
  return launch_scan_backward(of, to, stream);
}
const char* launch_selective_scan_backward(const ScanInputs<double>& of, const ScanGradients<double>& to,
                                           void* stream) {
  return launch_scan_backward(of, to, stream);
}

}  // namespace gantry::kernels
