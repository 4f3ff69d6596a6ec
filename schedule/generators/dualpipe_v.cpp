// DualPipe-V (DeepSeek-AI, the "cut-in-half" form of DualPipe, arXiv 2412.19437): chunks pass through the ranks in both
// directions, and in the steady state a forward of one chunk overlaps with the backward of the other.
#include <algorithm>
#include <deque>

#include "gantry/schedule/generators/generator.h"
#include "gantry/schedule/generators/v_placement.h"

namespace gantry::schedule {
namespace {

// One rank's row, step by step. The forwards and backwards of each chunk are in the order of the microbatches.
class Row {
 public:
  Row(int rank, int ranks) : stages_{rank, 2 * ranks - 1 - rank} {}

  void forward(int chunk) { row_.push_back({ActionKind::kForward, stages_[chunk], forwards_[chunk]++}); }
  void backward(int chunk, bool split = false) {
    const Action full{ActionKind::kBackward, stages_[chunk], backwards_[chunk]++};
    row_.push_back(full);
    if (!split) return;
    row_.back().kind = ActionKind::kInputGradient;
    weights_.push_back({ActionKind::kWeightGradient, full.stage, full.microbatch});
  }
  void overlapped(int forward_chunk, int backward_chunk) {
    forward(forward_chunk);
    row_.back().overlaps_next = true;
    backward(backward_chunk);
  }
  void weight() {
    row_.push_back(weights_.front());
    weights_.pop_front();
  }
  std::vector<Action> take() { return std::move(row_); }

 private:
  int stages_[2];
  int forwards_[2] = {0, 0}, backwards_[2] = {0, 0};
  std::deque<Action> weights_;
  std::vector<Action> row_;
};

// The authors' eight steps, for at least twice as many microbatches as ranks.
std::vector<Action> make_row(int rank, int ranks, int microbatches) {
  Row row(rank, ranks);
  const int behind = ranks - rank - 1;
  for (int i = 0; i < 2 * behind; ++i) row.forward(0);
  for (int i = 0; i < rank + 1; ++i) row.forward(0), row.forward(1);
  for (int i = 0; i < behind; ++i) row.backward(1, true), row.weight(), row.forward(1);
  for (int i = 0; i < microbatches - 2 * ranks + rank + 1; ++i) {
    if (i == 0 && behind == 0)
      row.forward(0), row.backward(1);  // the first pair of the last rank would only wait
    else
      row.overlapped(0, 1);
    row.overlapped(1, 0);
  }
  for (int i = 0; i < behind; ++i) row.backward(1), row.overlapped(1, 0);
  bool split = false;
  for (int i = 0; i < rank + 1; ++i) {
    const bool half = i == (rank + 1) / 2;
    split = split || (half && rank % 2 == 1);
    row.backward(1, split);
    split = split || (half && rank % 2 == 0);
    row.backward(0, split);
  }
  for (int i = 0; i < behind; ++i) row.weight(), row.backward(0, true);
  for (int i = 0; i < rank + 1; ++i) row.weight();
  return row.take();
}

Schedule make_dualpipe_v(const PipelineSizes& sizes, const GeneratorOptions&) {
  Schedule schedule = empty_v_schedule("dualpipe_v", sizes);
  schedule.microbatches = std::max(sizes.microbatches, 2 * sizes.ranks);
  for (int rank = 0; rank < sizes.ranks; ++rank)
    schedule.actions[rank] = make_row(rank, sizes.ranks, schedule.microbatches);
  // With fewer microbatches than the steps need, the last ones are removed, which leaves the order valid.
  return first_microbatches(std::move(schedule), sizes.microbatches);
}

}  // namespace

Generator dualpipe_v() { return {.name = "dualpipe_v", .default_chunks = 2, .max_chunks = 2, .make = make_dualpipe_v}; }

}  // namespace gantry::schedule
