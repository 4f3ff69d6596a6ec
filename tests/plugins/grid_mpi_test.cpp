// ranks: 4, also over tcp
// A part of the grid over MPI, bitwise identical to threads.
#include <gtest/gtest.h>

#include "model_case.h"

namespace gantry::testing {
namespace {

TEST(GridOverMpi, EqualsOneRankOnThreads) {
  const ModelCase what{.dropout = 0.1};
  for (const Layout& layout : {Layout{.pipeline = 4}, Layout{.tensor = 4}, Layout{.pipeline = 2, .tensor = 2},
                               Layout{.pipeline = 2, .data = 2}, Layout{.data = 2, .tensor = 2}})
    for (const char* schedule : {"1f1b", "gpipe"}) {
      const Parallelism how{layout, schedule, 3};
      const CaseResult over_mpi = run_case(what, how);
      CaseResult over_threads, one;
      over_threads = run_case(what, how, "local");
      one = run_case(what, {}, "local");
      expect_identical(over_threads, over_mpi, describe(how));
      expect_equal(one, over_mpi, 1e-10, describe(how));
    }
}

TEST(GridOverMpi, SchedulesZeroAndRecomputation) {
  const ModelCase what{.layers = 8, .dropout = 0.1};
  const CaseResult one = run_case(what, {}, "local");
  for (const Parallelism& how : std::vector<Parallelism>{
           {.layout = {.pipeline = 4}, .schedule = "zb_v", .microbatches = 5, .chunks = 2},
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
           .zero = 2}}) {
    const CaseResult over_mpi = run_case(what, how);
    expect_identical(run_case(what, how, "local"), over_mpi, describe(how));
    expect_equal(one, over_mpi, 1e-10, describe(how));
  }
}

TEST(GridOverMpi, RanksThatShareSequences) {
  const ModelCase what{.family = "llama", .layers = 2, .heads = 6, .key_heads = 2, .dropout = 0.1, .tokens = 13};
  const CaseResult one = run_case(what, {}, "local");
  for (const char* method : {"all_gather", "ring", "ulysses"})
    for (const Layout& layout :
         {Layout{.context = 4}, Layout{.pipeline = 2, .context = 2}, Layout{.tensor = 2, .context = 2}}) {
      const Parallelism how{.layout = layout, .microbatches = 3, .context_method = method};
      const CaseResult over_mpi = run_case(what, how);
      expect_identical(run_case(what, how, "local"), over_mpi, describe(how));
      expect_equal(one, over_mpi, 1e-10, describe(how));
    }
}

// Keys of one sequence for queries of another, and a bias by places.
TEST(GridOverMpi, RanksThatShareTheSequencesOfAnEncoderAndItsDecoder) {
  const ModelCase what{.family = "t5", .layers = 2, .heads = 6, .dropout = 0.1, .tokens = 9, .batches = {4, 3}};
  const CaseResult one = run_case(what, {}, "local");
  for (const char* method : {"ring", "ulysses"}) {
    const Parallelism how{.layout = {.pipeline = 2, .context = 2}, .microbatches = 2, .context_method = method};
    const CaseResult over_mpi = run_case(what, how);
    expect_identical(run_case(what, how, "local"), over_mpi, describe(how));
    expect_equal(one, over_mpi, 1e-10, describe(how));
  }
}

}  // namespace
}  // namespace gantry::testing
