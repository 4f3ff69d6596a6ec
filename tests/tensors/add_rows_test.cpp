// Adding rows to a table. The results of the CPU kernel and of a device's threads are bitwise identical to
// LibTorch's index_add_ in float32 or float64.
#include "gantry/tensors/kernels/add_rows.h"

#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::kernels {
namespace {

constexpr std::int64_t kTableRows = 7, kWidthOfRows = 5;

// Returns an index that contains the rows of the table 1, 8, 0, 16, 9, 25 and 0 times, in turn.
torch::Tensor index_of_runs() {
  std::vector<std::int64_t> left = {1, 8, 0, 16, 9, 25, 0}, index;
  for (bool any = true; any;) {
    any = false;
    for (std::int64_t row = kTableRows; row-- > 0;)
      if (left[row]-- > 0) {
        index.push_back(row);
        any = true;
      }
  }
  return torch::tensor(index, torch::kInt64);
}

torch::Tensor rows_of(std::int64_t count, torch::ScalarType type) {
  return (torch::arange(count * kWidthOfRows, torch::kFloat64) * 0.7)
      .sin()
      .mul_(3)
      .view({count, kWidthOfRows})
      .to(type);
}

template <class A, class T, class R>
void expect_as_index_add(torch::ScalarType of_table, torch::ScalarType of_rows) {
  const torch::Tensor index = index_of_runs(), rows = rows_of(index.numel(), of_rows);
  // The table is the first columns of a wider one.
  const torch::Tensor start = torch::linspace(-1, 1, kTableRows * (kWidthOfRows + 2), torch::kFloat64).to(of_table);
  const auto table_of = [&] { return start.clone().view({kTableRows, kWidthOfRows + 2}).narrow(1, 0, kWidthOfRows); };
  torch::Tensor expected = table_of(), there = table_of(), by_threads = table_of();
  const auto wide = of_table == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  expected.copy_(expected.to(wide).index_add_(0, index, rows.to(wide)));
  const auto version = there._version();
  add_rows(there, index, rows);
  EXPECT_TRUE(torch::equal(there, expected)) << of_table << " " << of_rows;
  EXPECT_GT(there._version(), version);

  const auto [to, from] = index.sort(/*stable=*/true, 0, false);
  const SortedRows sorted = sorted_rows(by_threads, to, from, rows);
  for (std::int64_t place = sorted.count; place-- > 0;)
    for (std::int64_t column = 0; column < kWidthOfRows; ++column)
      add_segment<A>(by_threads.data_ptr<T>(), rows.const_data_ptr<R>(), sorted, place, column);
  EXPECT_TRUE(torch::equal(by_threads, expected)) << of_table << " " << of_rows;
}

TEST(AddRows, HasTheBitsOfRowsThatAreAddedInTurn) {
  expect_as_index_add<double, double, double>(torch::kFloat64, torch::kFloat64);
  expect_as_index_add<float, float, float>(torch::kFloat32, torch::kFloat32);
  expect_as_index_add<float, at::BFloat16, at::BFloat16>(torch::kBFloat16, torch::kBFloat16);
  expect_as_index_add<float, at::Half, at::Half>(torch::kFloat16, torch::kFloat16);
  expect_as_index_add<float, float, at::BFloat16>(torch::kFloat32, torch::kBFloat16);
  expect_as_index_add<float, float, at::Half>(torch::kFloat32, torch::kFloat16);
}

TEST(AddRows, TakesRowsThatLieAnyhowAndRefusesWhatDoesNotFit) {
  const torch::Tensor index = torch::tensor({2, 0, 2}, torch::kInt64), rows = rows_of(3, torch::kFloat32);
  torch::Tensor expected = torch::zeros({kTableRows, kWidthOfRows}), table = torch::zeros({kTableRows, kWidthOfRows});
  expected.index_add_(0, index, rows);
  add_rows(table, index, rows.t().contiguous().t());
  EXPECT_TRUE(torch::equal(table, expected));
  add_rows(table, index.narrow(0, 0, 0), rows.narrow(0, 0, 0));
  EXPECT_TRUE(torch::equal(table, expected));
  EXPECT_THROW(add_rows(table, index, rows.narrow(0, 0, 2)), InternalError);
  EXPECT_THROW(add_rows(table, index + kTableRows, rows), InternalError);
}

}  // namespace
}  // namespace gantry::kernels
