#include <algorithm>

#include "gantry/booster/measure_rates.h"
#include "gantry/planner/calibration.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr int kTensors = 8;
constexpr std::int64_t kTensorBytes[] = {4 << 10, 64 << 10, 1 << 20, 8 << 20};
constexpr double kMostSlowdown = 9.9;  // a cluster file has slowdowns below 10

// Returns all groups of `size` ranks with distance `stride`, as in layouts. Remaining ranks are in no group.
std::vector<std::vector<int>> groups_of(int ranks, int size, int stride) {
  std::vector<std::vector<int>> sets;
  for (int first = 0; first + size * stride <= ranks; first += size * stride)
    for (int within = 0; within < stride; ++within) {
      std::vector<int>& set = sets.emplace_back();
      for (int each = 0; each < size; ++each) set.push_back(first + within + each * stride);
    }
  return sets;
}

// Adds the times of collectives while all groups communicate at the same time. Collective over the mesh.
void add_times(World& world, ProcessGroupMesh& mesh, int size, int stride,
               std::vector<planner::CollectiveTime>& times) {
  const auto group = mesh.make_group("measured", groups_of(world.size(), size, stride));
  const auto options = torch::TensorOptions().device(world.device());
  for (const std::int64_t bytes : kTensorBytes) {
    const std::int64_t share = bytes / 4 / size;
    // Use different tensors in each call, like training does.
    std::vector<torch::Tensor> full, parts;
    for (int each = 0; each < kTensors; ++each) {
      full.push_back(torch::zeros({share * size}, options));
      parts.push_back(torch::zeros({share}, options));
    }
    int next = 0;
    const Sizes sizes(size, share);
    const auto measured = [&](int rounds, const std::function<void()>& call) {
      const double seconds = seconds_of(world, mesh.world_group(), [&] {
        if (group) call();
      });
      times.push_back(
          {.ranks = size, .rounds = rounds, .bytes = 4.0 * static_cast<double>(share) * size, .seconds = seconds});
    };
    measured(2, [&] { group->all_reduce(full[next++ % kTensors]).wait(); });
    measured(1, [&] {
      const int each = next++ % kTensors;
      group->all_gather(full[each], parts[each], sizes).wait();
    });
  }
}

// Returns 1 + the additional time of matrix multiplications during an all-reduce, divided by the time of the
// all-reduce alone.
double overlap_slowdown(World& world, ProcessGroup& ranks) {
  constexpr std::int64_t kSize = 256, kEntries = std::int64_t{1} << 20;
  const auto options = torch::TensorOptions().device(world.device());
  const torch::Tensor a = torch::ones({kSize, kSize}, options);
  torch::Tensor product = torch::empty({kSize, kSize}, options), sum = torch::zeros({kEntries}, options);
  const double alone = seconds_of(world, ranks, [&] { ranks.all_reduce(sum).wait(); });
  const double one = seconds_of(world, ranks, [&] { at::mm_out(product, a, a); });
  const int products = static_cast<int>(std::clamp(2 * alone / one, 1.0, 10000.0));
  const auto compute = [&] {
    for (int each = 0; each < products; ++each) at::mm_out(product, a, a);
  };
  const double computed = seconds_of(world, ranks, compute);
  const double together = seconds_of(world, ranks, [&] {
    Work work = ranks.all_reduce(sum);
    compute();
    work.wait();
  });
  return std::clamp(1 + (together - computed) / alone, 1.0, kMostSlowdown);
}

// Returns the slowdown of matrix multiplications if the ranks synchronize every few milliseconds, as in
// tensor-parallel layers, because they wait for the slowest rank each time.
double meeting_slowdown(World& world, ProcessGroup& ranks) {
  constexpr std::int64_t kSize = 512;
  constexpr double kBetween = 0.01;
  constexpr int kMeetings = 16;
  const auto options = torch::TensorOptions().device(world.device());
  const torch::Tensor a = torch::ones({kSize, kSize}, options);
  torch::Tensor product = torch::empty({kSize, kSize}, options), sum = torch::zeros({1}, options);
  const double one = seconds_of(world, ranks, [&] { at::mm_out(product, a, a); });
  const int products = static_cast<int>(std::clamp(kBetween / one, 1.0, 10000.0));
  const auto compute = [&](bool meets) {
    for (int meeting = 0; meeting < kMeetings; ++meeting) {
      for (int each = 0; each < products; ++each) at::mm_out(product, a, a);
      if (meets) ranks.all_reduce(sum).wait();
    }
  };
  const double apart = seconds_of(world, ranks, [&] { compute(false); });
  const double together = seconds_of(world, ranks, [&] { compute(true); });
  return std::clamp(together / apart, 1.0, kMostSlowdown);
}

}  // namespace

MeasuredLinks measure_links(World& world, ProcessGroupMesh& mesh, int ranks_of_host, double memory_rate,
                            const MeasureProgress& progress) {
  MeasuredLinks links;
  if (world.size() == 1) {
    links.within.bytes_per_second = links.between.bytes_per_second = memory_rate;
    return links;
  }
  const torch::NoGradGuard no_gradients;
  std::vector<planner::CollectiveTime> within, between;
  progress(0, kLinkMeasurements);
  for (int size = 2; size <= ranks_of_host; size *= 2) add_times(world, mesh, size, 1, within);
  progress(1, kLinkMeasurements);
  const int hosts = world.size() / ranks_of_host;
  for (int size = 2; size <= hosts; size *= 2) add_times(world, mesh, size, ranks_of_host, between);
  if (within.empty()) within = between;
  links.within = planner::fit_link(within);
  links.between = between.empty() ? links.within : planner::fit_link(between);
  progress(2, kLinkMeasurements);
  links.overlap_slowdown = overlap_slowdown(world, mesh.world_group());
  progress(3, kLinkMeasurements);
  links.meeting_slowdown = meeting_slowdown(world, mesh.world_group());
  return links;
}

}  // namespace gantry
