// Seconds per send, all_reduce, all_gather, reduce_scatter, all_to_all and dispatch, one JSON line each.
// `comm_bench RANKS` measures threads and, for comparison, a plain memcpy on each of them. `mpirun -n RANKS
// comm_bench RANKS` measures processes and plain Open MPI. Rounds of both alternate, so that a drift of the
// machine's speed affects both equally.
//
// `bytes` is the size of the full tensor: the input of an all_reduce or reduce_scatter, the output of an
// all_gather, the bytes that a memcpy copies on all ranks at the same time. A send is half of a round trip. A
// dispatch is the token exchange of expert parallelism: the counts, the tokens as an all_to_all of the same
// number of bytes, and their order by expert.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#ifdef GANTRY_WITH_MPI
#include <mpi.h>

#include "gantry/tensors/libtorch.h"
#endif

#include "gantry/comm/process_group_mesh.h"
#include "gantry/launch/launch.h"
#include "gantry/nn/expert_exchange.h"

namespace {

using namespace gantry;
using Call = std::function<void()>;

constexpr std::int64_t kBytes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};

struct Row {
  const char* backend;
  const char* operation;
  Call call;
  int calls_of_it = 1;  // operations per call
};

double seconds_of(const Call& call, int calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
}

// Collective: all ranks measure, rank 0 prints the median and the minimum of the rounds.
void measure(World& world, ProcessGroup& group, std::int64_t bytes, const std::vector<Row>& rows) {
  // Many short rounds: on a busy machine at least some of them run undisturbed.
  const int calls = bytes > (4 << 20) ? 1 : bytes > (128 << 10) ? 5 : 30;
  const int rounds = bytes > (16 << 20) ? 7 : bytes > (4 << 20) ? 15 : 50;
  std::vector<std::vector<double>> seconds(rows.size());
  for (int round = 0; round <= rounds; ++round)
    for (std::size_t i = 0; i < rows.size(); ++i) {
      group.barrier().wait();
      const double now = seconds_of(rows[i].call, calls) / rows[i].calls_of_it;
      if (round > 0) seconds[i].push_back(now);  // the first round warms up
    }
  if (!world.is_main()) return;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::sort(seconds[i].begin(), seconds[i].end());
    std::printf(
        "{\"backend\": \"%s\", \"op\": \"%s\", \"ranks\": %d, \"bytes\": %lld, \"median\": %.4e, \"least\": %.4e}\n",
        rows[i].backend, rows[i].operation, group.size(), static_cast<long long>(bytes), seconds[i][rounds / 2],
        seconds[i].front());
  }
  std::fflush(stdout);
}

// A round trip between ranks 0 and 1; the other ranks wait at the next barrier.
void ping_pong(ProcessGroup& group, const torch::Tensor& tensor) {
  const TensorSpec spec{tensor.sizes().vec(), tensor.scalar_type()};
  if (group.rank() == 0) {
    group.hand_over(tensor, 1, {}).wait();
    group.recv(spec, 1, {}).wait();
  } else if (group.rank() == 1) {
    group.recv(spec, 0, {}).wait();
    group.hand_over(tensor, 0, {}).wait();
  }
}

constexpr std::int64_t kRow = 256, kExpertsOfRank = 4;  // elements per token

// Distributes the rows over the experts as evenly as possible.
void dispatch(ProcessGroup& group, const torch::Tensor& rows) {
  std::vector<std::int64_t> counts;
  std::vector<Range> held;
  for (std::int64_t rank = 0; rank < group.size(); ++rank)
    held.push_back({rank * kExpertsOfRank, (rank + 1) * kExpertsOfRank});
  for (const Range& range : partition(rows.size(0), 1, static_cast<int>(held.back().end), /*allow_empty=*/true))
    counts.push_back(range.size());
  const nn::ExpertExchange exchange = nn::agree_on_rows(group, counts, held, rows.device());
  nn::rows_to_experts(rows, exchange).wait();
}

#ifdef GANTRY_WITH_MPI
void plain_ping_pong(int rank, float* data, int count) {
  if (rank > 1) return;
  const auto send = [&] { MPI_Send(data, count, MPI_FLOAT, 1 - rank, 0, MPI_COMM_WORLD); };
  const auto receive = [&] { MPI_Recv(data, count, MPI_FLOAT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); };
  if (rank == 0) send();
  receive();
  if (rank == 1) send();
}
#endif

void measure_all(World& world) {
  ProcessGroupMesh mesh(world);
  ProcessGroup& group = mesh.world_group();
  const char* name = world.backend().name();
  for (const std::int64_t bytes : kBytes) {
    const std::int64_t count = bytes / 4, share = count / group.size();
    torch::Tensor tensor = torch::zeros({count}), full = torch::zeros({count}), part = torch::zeros({share});
    const Sizes sizes(group.size(), share);
    std::vector<Row> rows{{name, "send", [&] { ping_pong(group, tensor); }, 2},
                          {name, "all_reduce", [&] { group.all_reduce(tensor).wait(); }},
                          {name, "all_gather", [&] { group.all_gather(full, part, sizes).wait(); }},
                          {name, "reduce_scatter", [&] { group.reduce_scatter(part, full, sizes).wait(); }},
                          {name, "all_to_all", [&] { group.all_to_all(full, tensor, sizes, sizes).wait(); }},
                          {name, "dispatch", [&] {
                             dispatch(group, tensor.view({-1, kRow}));
                           }}};
    float *data = tensor.data_ptr<float>(), *all = full.data_ptr<float>(), *mine = part.data_ptr<float>();
    if (std::strcmp(name, "local") == 0) rows.push_back({"memcpy", "copy", [=] { std::memcpy(all, data, bytes); }});
#ifdef GANTRY_WITH_MPI
    if (std::strcmp(name, "mpi") == 0) {
      const int n = static_cast<int>(count), m = static_cast<int>(share);
      rows.push_back({"openmpi", "send", [=, &world] { plain_ping_pong(world.rank(), data, n); }, 2});
      rows.push_back(
          {"openmpi", "all_reduce", [=] { MPI_Allreduce(MPI_IN_PLACE, data, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }});
      rows.push_back(
          {"openmpi", "all_gather", [=] { MPI_Allgather(mine, m, MPI_FLOAT, all, m, MPI_FLOAT, MPI_COMM_WORLD); }});
      rows.push_back({"openmpi", "reduce_scatter",
                      [=] { MPI_Reduce_scatter_block(all, mine, m, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }});
      rows.push_back(
          {"openmpi", "all_to_all", [=] { MPI_Alltoall(data, m, MPI_FLOAT, all, m, MPI_FLOAT, MPI_COMM_WORLD); }});
    }
#endif
    measure(world, group, bytes, rows);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Config config;
  config.parallel.tensor = argc > 1 ? std::atoi(argv[1]) : 2;
  return launch(config, measure_all);
}
