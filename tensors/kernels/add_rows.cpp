#include "gantry/tensors/kernels/add_rows.h"

#include <string>

#include <torch/library.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::kernels {
namespace {

// Adds one row after the other. A is the type of the table and of the additions.
template <class A, class R>
void add_in_turn(at::Tensor& table, const at::Tensor& index, const at::Tensor& rows) {
  A* const begin = table.data_ptr<A>();
  const R* const added = rows.const_data_ptr<R>();
  const auto* to = index.const_data_ptr<std::int64_t>();
  const std::int64_t columns = table.size(1);
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    A* const sums = begin + to[i] * table.stride(0);
    const R* const row = added + i * rows.stride(0);
#pragma GCC ivdep  // the table and the rows do not overlap
    for (std::int64_t column = 0; column < columns; ++column) sums[column] += static_cast<A>(row[column]);
  }
}

// For a table in half precision: each sum is rounded once, as on a device.
template <class T>
void add_by_segments(at::Tensor& table, const at::Tensor& index, const at::Tensor& rows) {
  const auto [to, from] = index.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const SortedRows sorted = sorted_rows(table, to, from, rows);
  for (std::int64_t place = 0; place < sorted.count; ++place)
    for (std::int64_t column = 0; column < sorted.columns; ++column)
      add_segment<float>(table.data_ptr<T>(), rows.const_data_ptr<T>(), sorted, place, column);
}

void check_places(const at::Tensor& table, const at::Tensor& index) {
  const auto* to = index.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < index.numel(); ++i)
    if (to[i] < 0 || to[i] >= table.size(0))
      throw InternalError({"rows of a table",
                           "row " + std::to_string(to[i]) + " is outside the table " + describe(table),
                           "an index of one of its rows", ""});
}

at::Tensor& add_rows_on_cpu(at::Tensor& table, const at::Tensor& index, const at::Tensor& rows) {
  const at::Tensor places = index.contiguous();
  check_places(table, places);
  const auto of_table = table.scalar_type(), of_rows = rows.scalar_type();
  if (of_table == at::kDouble)
    add_in_turn<double, double>(table, places, rows);
  else if (of_table == at::kBFloat16)
    add_by_segments<at::BFloat16>(table, places, rows);
  else if (of_table == at::kHalf)
    add_by_segments<at::Half>(table, places, rows);
  else if (of_rows == at::kBFloat16)
    add_in_turn<float, at::BFloat16>(table, places, rows);
  else if (of_rows == at::kHalf)
    add_in_turn<float, at::Half>(table, places, rows);
  else
    add_in_turn<float, float>(table, places, rows);
  return table;
}

// The meta device: there is nothing to compute.
at::Tensor& add_no_rows(at::Tensor& table, const at::Tensor&, const at::Tensor&) { return table; }

bool has_close_columns(const at::Tensor& matrix) { return matrix.size(1) <= 1 || matrix.stride(1) == 1; }

at::Tensor as_added(const at::Tensor& rows, at::ScalarType of_table) {
  const bool is_low = rows.scalar_type() == at::kBFloat16 || rows.scalar_type() == at::kHalf;
  const at::Tensor typed = of_table == at::kFloat && is_low ? rows : rows.to(of_table);
  return has_close_columns(typed) ? typed : typed.contiguous();
}

}  // namespace

SortedRows sorted_rows(const torch::Tensor& table, const torch::Tensor& to, const torch::Tensor& from,
                       const torch::Tensor& rows) {
  return {.to = to.const_data_ptr<std::int64_t>(),
          .from = from.const_data_ptr<std::int64_t>(),
          .count = to.numel(),
          .columns = table.size(1),
          .table_stride = table.stride(0),
          .row_stride = rows.stride(0)};
}

void add_rows(torch::Tensor& table, const torch::Tensor& index, const torch::Tensor& rows) {
  static const auto kOperator =
      c10::Dispatcher::singleton().findSchemaOrThrow("gantry::add_rows_", "").typed<decltype(add_rows_on_cpu)>();
  if (table.dim() != 2 || rows.dim() != 2 || rows.size(1) != table.size(1) || index.dim() != 1 ||
      index.size(0) != rows.size(0) || !has_close_columns(table))
    throw InternalError(
        {"rows of a table",
         "rows " + describe(rows) + " with the index " + describe(index) + " do not fit the table " + describe(table),
         "rows as wide as the table, and one index for each", ""});
  if (rows.numel() == 0) return;
  const torch::NoGradGuard no_grad;
  const at::Tensor added = as_added(rows, table.scalar_type());
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  kOperator.call(table, index, added);
  if (!table.is_inference()) table.unsafeGetTensorImpl()->bump_version();  // it was changed in place
}

TORCH_LIBRARY_FRAGMENT(gantry, library) {
  library.def("add_rows_(Tensor(a!) table, Tensor index, Tensor rows) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(gantry, CPU, library) { library.impl("add_rows_", &add_rows_on_cpu); }
TORCH_LIBRARY_IMPL(gantry, Meta, library) { library.impl("add_rows_", &add_no_rows); }

}  // namespace gantry::kernels
