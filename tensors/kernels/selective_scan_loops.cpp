#include "gantry/tensors/kernels/selective_scan_loops.h"

#include <algorithm>

#include "gantry/tensors/kernels/host_loops.h"

namespace gantry::kernels {
namespace {

// Numbers of kScanLanes channels. Channels beyond the last one are zero.
template <class A>
struct alignas(64) Lanes {
  A at[kScanLanes];
};

// One group of channels in a row-major matrix.
struct LaneRows {
  std::int64_t first, stride;
  int width;

  template <class A>
  GANTRY_IN_LOOPS void read(Lanes<A>& lanes, const A* matrix, std::int64_t row) const {
    const A* from = matrix + row * stride + first;
    if (width == kScanLanes)
      for (int lane = 0; lane < kScanLanes; ++lane) lanes.at[lane] = from[lane];
    else
      for (int lane = 0; lane < kScanLanes; ++lane) lanes.at[lane] = lane < width ? from[lane] : A(0);
  }
  template <class A>
  GANTRY_IN_LOOPS void write(A* matrix, std::int64_t row, const Lanes<A>& lanes) const {
    A* to = matrix + row * stride + first;
    if (width == kScanLanes)
      for (int lane = 0; lane < kScanLanes; ++lane) to[lane] = lanes.at[lane];
    else
      for (int lane = 0; lane < width; ++lane) to[lane] = lanes.at[lane];
  }
};

template <class A>
LaneRows lane_rows(const ScanInputs<A>& of, std::int64_t group) {
  const std::int64_t first = group * kScanLanes;
  return {first, of.channels, static_cast<int>(std::min<std::int64_t>(kScanLanes, of.channels - first))};
}

template <class A>
GANTRY_IN_LOOPS A sum_of_lanes(const Lanes<A>& lanes) {
  constexpr int kParts = 16;
  A parts[kParts] = {};
  for (int begin = 0; begin < kScanLanes; begin += kParts)
    for (int i = 0; i < kParts; ++i) parts[i] += lanes.at[begin + i];
  for (int half = kParts / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) parts[i] += parts[i + half];
  return parts[0];
}

// kScanTokens tokens of a group of channels.
template <class A>
struct ScanPiece {
  const ScanInputs<A>& of;
  std::int64_t sample, piece;
  LaneRows rows;
  Lanes<A> x[kScanTokens], dt[kScanTokens], written[kScanTokens];

  GANTRY_IN_LOOPS std::int64_t first() const { return piece * kScanTokens; }
  GANTRY_IN_LOOPS int count() const {
    return static_cast<int>(std::min<std::int64_t>(kScanTokens, of.tokens - first()));
  }
  GANTRY_IN_LOOPS std::int64_t row(int token) const { return sample * of.tokens + first() + token; }
  GANTRY_IN_LOOPS std::int64_t state_row(std::int64_t state) const { return sample * of.states + state; }
  GANTRY_IN_LOOPS std::int64_t border_row(std::int64_t state) const {
    return (sample * of.pieces() + piece) * of.states + state;
  }
  GANTRY_IN_LOOPS bool starts(int token) const { return of.starts_at(sample, first() + token); }

  GANTRY_IN_LOOPS void read(std::int64_t which) {
    piece = which;
    for (int token = 0; token < count(); ++token) {
      rows.read(x[token], of.x, row(token));
      rows.read(dt[token], of.dt, row(token));
      for (int lane = 0; lane < kScanLanes; ++lane) written[token].at[lane] = dt[token].at[lane] * x[token].at[lane];
    }
  }
};

template <class A>
GANTRY_IN_LOOPS void scan_piece(const ScanPiece<A>& piece, const ScanResults<A>& to) {
  const ScanInputs<A>& of = piece.of;
  Lanes<A> out[kScanTokens], state, a, skip = {};
  if (of.d) piece.rows.read(skip, of.d, 0);
  for (int token = 0; token < piece.count(); ++token)
    for (int lane = 0; lane < kScanLanes; ++lane) out[token].at[lane] = skip.at[lane] * piece.x[token].at[lane];
  for (std::int64_t n = 0; n < of.states; ++n) {
    piece.rows.read(state, to.state, piece.state_row(n));
    piece.rows.read(a, of.a, n);
    piece.rows.write(to.borders, piece.border_row(n), state);
    for (int token = 0; token < piece.count(); ++token) {
      const A b = of.b[piece.row(token) * of.states + n], c = of.c[piece.row(token) * of.states + n];
      if (piece.starts(token)) state = {};
      for (int lane = 0; lane < kScanLanes; ++lane) {
        const A factor = exp_element(piece.dt[token].at[lane] * a.at[lane]);
        state.at[lane] = scan_state(state.at[lane], factor, piece.written[token].at[lane], b);
        out[token].at[lane] += state.at[lane] * c;
      }
    }
    piece.rows.write(to.state, piece.state_row(n), state);
  }
  for (int token = 0; token < piece.count(); ++token) piece.rows.write(to.out, piece.row(token), out[token]);
}

template <class A>
GANTRY_IN_LOOPS void scan_channels(const ScanInputs<A>& of, const ScanResults<A>& to, std::int64_t sample,
                                   std::int64_t group) {
  ScanPiece<A> piece{.of = of, .sample = sample, .piece = 0, .rows = lane_rows(of, group)};
  for (std::int64_t i = 0; i < of.pieces(); ++i) {
    piece.read(i);
    scan_piece(piece, to);
  }
}

// The gradients of a piece that are sums over states.
template <class A>
struct PieceGradients {
  Lanes<A> out[kScanTokens], written[kScanTokens], dt[kScanTokens];
};

// One number of the states of each channel.
template <class A>
GANTRY_IN_LOOPS void scan_state_backward(const ScanPiece<A>& piece, const ScanGradients<A>& to, PieceGradients<A>& sums,
                                         std::int64_t n, std::int64_t group) {
  const ScanInputs<A>& of = piece.of;
  const int count = piece.count();
  Lanes<A> before[kScanTokens], factors[kScanTokens], state, a, to_a, to_state, to_b, to_c;
  piece.rows.read(state, to.borders, piece.border_row(n));
  piece.rows.read(a, of.a, n);
  for (int token = 0; token < count; ++token) {
    const A b = of.b[piece.row(token) * of.states + n];
    if (piece.starts(token)) state = {};
    for (int lane = 0; lane < kScanLanes; ++lane) {
      before[token].at[lane] = state.at[lane];
      factors[token].at[lane] = exp_element(piece.dt[token].at[lane] * a.at[lane]);
      state.at[lane] = scan_state(state.at[lane], factors[token].at[lane], piece.written[token].at[lane], b);
    }
  }
  piece.rows.read(to_a, to.a, piece.state_row(n));
  piece.rows.read(to_state, to.state, piece.state_row(n));
  const std::int64_t groups = (of.channels + kScanLanes - 1) / kScanLanes;
  for (int token = count - 1; token >= 0; --token) {
    const A b = of.b[piece.row(token) * of.states + n], c = of.c[piece.row(token) * of.states + n];
    for (int lane = 0; lane < kScanLanes; ++lane) {
      const ScanTerms<A> terms = scan_terms(to_state.at[lane], sums.out[token].at[lane], before[token].at[lane],
                                            factors[token].at[lane], piece.written[token].at[lane], b, c);
      to_state.at[lane] = terms.before;
      sums.written[token].at[lane] += terms.written;
      sums.dt[token].at[lane] += terms.exponent * a.at[lane];
      to_a.at[lane] += terms.exponent * piece.dt[token].at[lane];
      to_b.at[lane] = terms.b;
      to_c.at[lane] = terms.c;
    }
    if (piece.starts(token)) to_state = {};
    const std::int64_t at = ((piece.sample * groups + group) * of.tokens + piece.first() + token) * of.states + n;
    to.b[at] = sum_of_lanes(to_b);
    to.c[at] = sum_of_lanes(to_c);
  }
  piece.rows.write(to.a, piece.state_row(n), to_a);
  piece.rows.write(to.state, piece.state_row(n), to_state);
}

template <class A>
GANTRY_IN_LOOPS void scan_piece_backward(const ScanPiece<A>& piece, const ScanGradients<A>& to, Lanes<A>& to_d,
                                         std::int64_t group) {
  PieceGradients<A> sums = {};
  Lanes<A> skip = {}, to_x;
  if (piece.of.d) piece.rows.read(skip, piece.of.d, 0);
  for (int token = 0; token < piece.count(); ++token) piece.rows.read(sums.out[token], to.out, piece.row(token));
  for (std::int64_t n = 0; n < piece.of.states; ++n) scan_state_backward(piece, to, sums, n, group);
  for (int token = 0; token < piece.count(); ++token) {
    for (int lane = 0; lane < kScanLanes; ++lane) {
      const A x = piece.x[token].at[lane], of_out = sums.out[token].at[lane];
      to_x.at[lane] = sums.written[token].at[lane] * piece.dt[token].at[lane] + of_out * skip.at[lane];
      sums.dt[token].at[lane] += sums.written[token].at[lane] * x;
      to_d.at[lane] += of_out * x;
    }
    piece.rows.write(to.x, piece.row(token), to_x);
    piece.rows.write(to.dt, piece.row(token), sums.dt[token]);
  }
}

template <class A>
GANTRY_IN_LOOPS void scan_channels_backward(const ScanInputs<A>& of, const ScanGradients<A>& to, std::int64_t sample,
                                            std::int64_t group) {
  ScanPiece<A> piece{.of = of, .sample = sample, .piece = 0, .rows = lane_rows(of, group)};
  Lanes<A> to_d = {};
  for (std::int64_t n = 0; n < of.states; ++n) piece.rows.write(to.a, piece.state_row(n), to_d);
  for (std::int64_t i = of.pieces() - 1; i >= 0; --i) {
    piece.read(i);
    scan_piece_backward(piece, to, to_d, group);
  }
  if (of.d) piece.rows.write(to.d, sample, to_d);
}

}  // namespace

GANTRY_HOST_LOOPS void scan_group(const ScanInputs<float>& of, const ScanResults<float>& to, std::int64_t sample,
                                  std::int64_t group) {
  scan_channels(of, to, sample, group);
}

GANTRY_HOST_LOOPS void scan_group(const ScanInputs<double>& of, const ScanResults<double>& to, std::int64_t sample,
                                  std::int64_t group) {
  scan_channels(of, to, sample, group);
}

GANTRY_HOST_LOOPS void scan_group_backward(const ScanInputs<float>& of, const ScanGradients<float>& to,
                                           std::int64_t sample, std::int64_t group) {
  scan_channels_backward(of, to, sample, group);
}

GANTRY_HOST_LOOPS void scan_group_backward(const ScanInputs<double>& of, const ScanGradients<double>& to,
                                           std::int64_t sample, std::int64_t group) {
  scan_channels_backward(of, to, sample, group);
}

}  // namespace gantry::kernels
