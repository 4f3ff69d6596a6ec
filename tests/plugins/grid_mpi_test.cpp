// ranks: 4, also over tcp
// A part of the grid over MPI, bitwise identical to threads.
#include <gtest/gtest.h>

#include "gantry/core/host/first_process.h"
#include "model_case.h"
#include "mpi_job.h"

namespace gantry::testing {
namespace {

// MPI and sockets run the two halves of a list in turn.
template <class T>
std::vector<T> half_of(const std::vector<T>& list) {
  return turn_of(jobs_are_over_tcp() ? 1 : 0, 2, list);
}

// The first process compares, because all have the same results.
CaseResult one_rank_of(const ModelCase& what) {
  return is_first_process() ? run_case(what, {}, "local") : CaseResult();
}

void expect_those_of_threads(const ModelCase& what, const CaseResult& one, const Parallelism& how) {
  const CaseResult over_mpi = run_case(what, how);
  if (!is_first_process()) return;
  expect_identical(run_case(what, how, "local"), over_mpi, describe(how));
  expect_equal(one, over_mpi, 1e-10, describe(how));
}

TEST(GridOverMpi, EqualsOneRankOnThreads) {
  const ModelCase what{.dropout = 0.1};
  const CaseResult one = one_rank_of(what);
  std::vector<Parallelism> layouts;
  for (const Layout& layout : {Layout{.pipeline = 4}, Layout{.tensor = 4}, Layout{.pipeline = 2, .tensor = 2},
                               Layout{.pipeline = 2, .data = 2}, Layout{.data = 2, .tensor = 2}})
    for (const char* schedule : {"1f1b", "gpipe"}) layouts.push_back({layout, schedule, 3});
  std::swap(layouts[2], layouts[3]);  // so that each half has both schedules
  std::swap(layouts[6], layouts[7]);
  for (const Parallelism& how : half_of(layouts)) expect_those_of_threads(what, one, how);
}

TEST(GridOverMpi, SchedulesZeroAndRecomputation) {
  const ModelCase what{.layers = 8, .dropout = 0.1};
  const CaseResult one = one_rank_of(what);
  for (const Parallelism& how : half_of<Parallelism>(
           {{.layout = {.pipeline = 4}, .schedule = "zb_v", .microbatches = 5, .chunks = 2},
            {.layout = {.pipeline = 4}, .schedule = "dualpipe_v", .microbatches = 6, .chunks = 2},
            {.layout = {.pipeline = 2, .tensor = 2}, .schedule = "interleaved_1f1b", .microbatches = 3, .chunks = 2},
            {.layout = {.pipeline = 2, .tensor = 2},
            .schedule = "zb_h2",
            .microbatches = 4,
            .sequence_parallel = true,
            .recompute = "full"},
            {.layout = {.pipeline = 2, .data = 2}, .schedule = "zb_h1", .microbatches = 2, .zero = 1},
            {.layout = {.data = 2, .tensor = 2}, .microbatches = 2, .zero = 2, .accumulation = 2},
            {.layout = {.pipeline = 2, .data = 2},
            .schedule = "v_half",
            .microbatches = 3,
            .chunks = 2,
            .recompute = "selective",
            .recompute_layers = {1},
            .zero = 2}}))
    expect_those_of_threads(what, one, how);
}

TEST(GridOverMpi, RanksThatShareSequences) {
  const ModelCase what{.family = "llama", .layers = 2, .heads = 6, .key_heads = 2, .dropout = 0.1, .tokens = 13};
  const CaseResult one = one_rank_of(what);
  std::vector<Parallelism> layouts;
  for (const char* method : {"all_gather", "ring", "ulysses"})
    for (const Layout& layout :
         {Layout{.context = 4}, Layout{.pipeline = 2, .context = 2}, Layout{.tensor = 2, .context = 2}})
      layouts.push_back({.layout = layout, .microbatches = 3, .context_method = method});
  for (const Parallelism& how : half_of(layouts)) expect_those_of_threads(what, one, how);
}

// Keys of one sequence for queries of another, and a bias by places.
TEST(GridOverMpi, RanksThatShareTheSequencesOfAnEncoderAndItsDecoder) {
  const ModelCase what{.family = "t5", .layers = 2, .heads = 6, .dropout = 0.1, .tokens = 9, .batches = {4, 3}};
  const CaseResult one = one_rank_of(what);
  for (const char* method : {"ring", "ulysses"}) {
    const Parallelism how{.layout = {.pipeline = 2, .context = 2}, .microbatches = 2, .context_method = method};
    expect_those_of_threads(what, one, how);
  }
}

}  // namespace
}  // namespace gantry::testing
