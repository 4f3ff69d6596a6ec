// What is added to an element of a table, for host and device. T is what the table is stored as, R what the rows are; A
// is what is added in, and T is rounded to once.
#pragma once

#include <cstdint>

#include "gantry/tensors/kernels/host_device.h"

namespace gantry::kernels {

// Rows that were sorted by the table's row that each goes to, without changing the order of those of one.
struct SortedRows {
  const std::int64_t* to = nullptr;    // by place: the table's row
  const std::int64_t* from = nullptr;  // and which of the rows goes there
  std::int64_t count = 0;
  std::int64_t columns = 0, table_stride = 0, row_stride = 0;  // in elements
};

// One column of all rows that go where the one at `place` does, in their order. The first place of each does it; the
// others have nothing to do.
template <class A, class T, class R>
GANTRY_HOST_DEVICE void add_segment(T* table, const R* rows, const SortedRows& sorted, std::int64_t place,
                                    std::int64_t column) {
  constexpr int kAtOnce = 8;  // rows that are read together, since each comes late
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
