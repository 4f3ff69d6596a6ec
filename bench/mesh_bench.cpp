// Seconds and memory to list the groups of all ranks of a job over five axes, compared with writing the same
// number of integers to a vector.
//   mesh_bench [RANKS]
// Prints one JSON line.
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <numeric>
#include <sys/resource.h>
#include <vector>

#include "gantry/core/mesh.h"

namespace {

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

class Watch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 16384;
  if (ranks < 1024 || ranks % 1024 != 0) {
    fmt::print(stderr, "error: mesh_bench: {} ranks; expected a multiple of 1024\n", ranks);
    return 2;
  }
  const double before = peak_megabytes();
  const Watch making;
  const gantry::Mesh mesh = gantry::Mesh::hybrid(ranks, 16, 0, 8, {"pp", "dp", "tp"}, 4, 64);
  std::vector<std::vector<std::vector<int>>> all;
  std::size_t groups = 0, numbers = 0;
  for (const auto& set : mesh.group_sets())
    for (const auto& group : all.emplace_back(mesh.groups(set))) ++groups, numbers += group.size();
  const double seconds = making.seconds(), megabytes = peak_megabytes() - before;
  const Watch own;
  std::size_t peers = 0;
  for (const auto& set : mesh.group_sets()) peers += mesh.ranks_along(ranks - 1, set).size();
  const double of_one = own.seconds();
  const Watch writing;
  std::vector<int> written(numbers);
  std::iota(written.begin(), written.end(), 0);
  const double bound = writing.seconds();
  fmt::print(R"({{"ranks": {}, "sets": {}, "groups": {}, "numbers": {}, "seconds": {:.4f}, "megabytes": {:.1f}, )"
             R"("numbers_of_one_rank": {}, "seconds_of_one_rank": {:.5f}, "seconds_of_writing": {:.4f}, )"
             R"("megabytes_of_numbers": {:.1f}}})"
             "\n",
             ranks, all.size(), groups, numbers, seconds, megabytes, peers, of_one, bound,
             static_cast<double>(written.size() * sizeof(int)) / (1 << 20));
}
