// Seconds of one send, all_reduce and all_gather between two ranks, a JSON line each. Run alone it measures threads,
// under `mpirun -n 2` processes, with plain Open MPI beside them.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#ifdef GANTRY_WITH_MPI
#include <mpi.h>
#endif

#include "gantry/comm/launch.h"
#include "gantry/comm/process_group_mesh.h"

namespace {

using namespace gantry;

constexpr std::int64_t kBytes[] = {4 << 10, 1 << 20, 16 << 20};

// The median of several rounds, each of enough calls to be seen.
double seconds_of(std::int64_t bytes, const std::function<void()>& call) {
  const int calls = bytes > (4 << 20) ? 10 : bytes > (64 << 10) ? 50 : 500;
  std::vector<double> rounds;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    rounds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls);
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

void report(bool speak, const char* backend, const char* operation, std::int64_t bytes, double seconds) {
  if (!speak) return;
  std::printf("{\"backend\": \"%s\", \"op\": \"%s\", \"bytes\": %lld, \"seconds\": %.3e}\n", backend, operation,
              static_cast<long long>(bytes), seconds);
  std::fflush(stdout);
}

// There and back, halved.
void ping_pong(ProcessGroup& group, const torch::Tensor& tensor) {
  const TensorSpec spec{tensor.sizes().vec(), tensor.scalar_type()};
  if (group.rank() == 0) {
    group.send(tensor, 1, {}).wait();
    group.recv(spec, 1, {}).wait();
  } else {
    group.recv(spec, 0, {}).wait();
    group.send(tensor, 0, {}).wait();
  }
}

void measure(World& world) {
  ProcessGroupMesh mesh(world);
  ProcessGroup& group = mesh["tp"];
  for (const std::int64_t bytes : kBytes) {
    torch::Tensor tensor = torch::zeros({bytes / 4});
    torch::Tensor gathered = torch::zeros({bytes / 4}), part = torch::zeros({bytes / 8});
    report(world.is_main(), world.backend().name(), "send", bytes,
           seconds_of(bytes, [&] { ping_pong(group, tensor); }) / 2);
    report(world.is_main(), world.backend().name(), "all_reduce", bytes,
           seconds_of(bytes, [&] { group.all_reduce(tensor).wait(); }));
    report(world.is_main(), world.backend().name(), "all_gather", bytes, seconds_of(bytes, [&] {
             group.all_gather(gathered, part, {bytes / 8, bytes / 8}).wait();
           }));
#ifdef GANTRY_WITH_MPI
    if (std::string(world.backend().name()) != "mpi") continue;
    float* data = tensor.data_ptr<float>();
    const int count = static_cast<int>(bytes / 4);
    report(world.is_main(), "openmpi", "send", bytes,
           seconds_of(bytes, [&] {
             if (world.rank() == 0) {
               MPI_Send(data, count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
               MPI_Recv(data, count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
             } else {
               MPI_Recv(data, count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
               MPI_Send(data, count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
             }
           }) / 2);
    report(world.is_main(), "openmpi", "all_reduce", bytes,
           seconds_of(bytes, [&] { MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }));
    report(world.is_main(), "openmpi", "all_gather", bytes, seconds_of(bytes, [&] {
             MPI_Allgather(part.data_ptr<float>(), count / 2, MPI_FLOAT, gathered.data_ptr<float>(), count / 2,
                           MPI_FLOAT, MPI_COMM_WORLD);
           }));
#endif
  }
}

}  // namespace

int main() {
  Config config;
  config.parallel.tensor = 2;
  return launch(config, measure);
}
