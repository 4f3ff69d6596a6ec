#include "gantry/comm/mpi/mpi_backend.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mpi.h>
#include <mutex>

#include "gantry/comm/backends.h"
#include "gantry/comm/mpi/mpi_group.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

int rank_of_world() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

class MpiBackend final : public Backend {
 public:
  MpiBackend(double timeout_seconds, std::function<std::string(int)> describe_rank)
      : context_{timeout_seconds, std::move(describe_rank)} {}

  const char* name() const override { return "mpi"; }
  int rank() const override { return mpi_world_rank(); }
  int size() const override { return mpi_world_size(); }

  std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override {
    MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    check_mpi(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &members), "MPI_Group_incl");
    MPI_Comm messages = MPI_COMM_NULL, collectives = MPI_COMM_NULL;
    // Only members call; groups are made in one order, so that a tag for each of the two is enough.
    check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, members, 0, &messages), "MPI_Comm_create_group");
    check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, members, 1, &collectives), "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(messages, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(collectives, MPI_ERRORS_RETURN);
    MPI_Group_free(&members);
    MPI_Group_free(&world);
    const auto place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
    return std::make_unique<MpiGroup>(context_, label, ranks, static_cast<int>(place), messages, collectives);
  }

  void abort(const std::string& reason) override {
    std::fprintf(stderr, "error: %s\n", reason.c_str());
    mpi_abort(PeerError::kExitCode);
  }

 private:
  MpiContext context_;
};

}  // namespace

void mpi_initialise() {
  static std::once_flag once;
  std::call_once(once, [] {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    if (provided < MPI_THREAD_MULTIPLE)
      throw ResourceError(
          {"MPI", "does not provide MPI_THREAD_MULTIPLE", "an MPI built with threads", "use Debian's Open MPI"});
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::atexit([] { MPI_Finalize(); });
  });
}

int mpi_world_rank() { return rank_of_world(); }

int mpi_world_size() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

int mpi_ranks_on_host() {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int size = 1;
  MPI_Comm_size(host, &size);
  MPI_Comm_free(&host);
  return size;
}

void mpi_abort(int exit_code) {
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

std::unique_ptr<Backend> make_mpi_backend(double timeout_seconds, std::function<std::string(int)> describe_rank) {
  return std::make_unique<MpiBackend>(timeout_seconds, std::move(describe_rank));
}

int launch_mpi(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) {
  mpi_initialise();
  set_rank_threads(config.comm, mpi_ranks_on_host());
  const auto describe = [mesh](int rank) { return mesh.describe_rank(rank); };
  try {
    // Never destroyed: operations may be outstanding at exit, and they name ranks by it.
    static std::vector<std::unique_ptr<Backend>>* backends = new std::vector<std::unique_ptr<Backend>>();
    backends->push_back(make_mpi_backend(config.comm.timeout_seconds, describe));
    World world(*backends->back(), config, mesh);
    body(world);
    return 0;
  } catch (...) {
    const Failure failure = describe_exception(std::current_exception());
    const std::string rank = mesh.size() == 1 ? "" : mesh.describe_rank(mpi_world_rank()) + ": ";
    std::fprintf(stderr, "error: %s%s\n", rank.c_str(), failure.line.c_str());
    mpi_abort(failure.exit_code);
  }
}

}  // namespace gantry
