// Adds rows to one element of a table, for host and device. T is the type of the table, R the type of the
// rows, and A the type of the additions. The sum is rounded to T once.
#pragma once

#include <cstdint>

#include "gantry/tensors/kernels/host_device.h"

namespace gantry::kernels {

// Rows in the order of their target rows in the table. Rows with the same target keep their order.
struct SortedRows {
  const std::int64_t* to = nullptr;    // for each place: the target row in the table
  const std::int64_t* from = nullptr;  // for each place: the index of the added row
  std::int64_t count = 0;
  std::int64_t columns = 0, table_stride = 0, row_stride = 0;  // in elements
};

// Adds one column of all rows with the same target as the row at `place`, in their order. Has an effect only
// for the first place of this target.
template <class A, class T, class R>
GANTRY_HOST_DEVICE void add_segment(T* table, const R* rows, const SortedRows& sorted, std::int64_t place,
                                    std::int64_t column) {
  constexpr int kAtOnce = 8;  // rows that are read together, to hide the latency of the reads
  const std::int64_t to = sorted.to[place];
  if (place > 0 && sorted.to[place - 1] == to) return;
  T* const element = table + to * sorted.table_stride + column;
  A sum = static_cast<A>(*element);
  int found = kAtOnce;
  for (; found == kAtOnce; place += kAtOnce) {
    R next[kAtOnce];
    found = 0;
    for (int i = 0; i < kAtOnce; ++i) {
      const bool belongs = place + i < sorted.count && sorted.to[place + i] == to;
      next[i] = belongs ? rows[sorted.from[place + i] * sorted.row_stride + column] : R(0.0F);
      found += belongs ? 1 : 0;
    }
    for (int i = 0; i < kAtOnce; ++i)
      if (i < found) sum += static_cast<A>(next[i]);
  }
  *element = static_cast<T>(sum);
}

}  // namespace gantry::kernels
