#include "gantry/comm/mpi/mpi_operation.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// The outstanding operations of this process, oldest first.
class Progress {
 public:
  void add(std::shared_ptr<MpiOperation> operation) {
    const std::lock_guard lock(mutex_);
    if (!operation->advance()) outstanding_.push_back(std::move(operation));
  }
  void poll() {
    const std::lock_guard lock(mutex_);
    std::erase_if(outstanding_, [](const auto& operation) { return operation->advance(); });
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<MpiOperation>> outstanding_;
};

Progress& progress() {
  static auto* path = new Progress();  // never destroyed: operations may be outstanding at exit
  return *path;
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw PeerError({call, std::string(text, static_cast<std::size_t>(length)), "",
                   "check that all ranks make the same calls with the same sizes"});
}

MpiOperation::MpiOperation(const MpiContext& context, int world_rank, std::string what, std::vector<Stage> stages)
    : context_(context), world_rank_(world_rank), what_(std::move(what)), stages_(stages.begin(), stages.end()) {}

void MpiOperation::post_send(const void* data, std::int64_t bytes, int to, int tag, MPI_Comm communicator) {
  const char* left = static_cast<const char*>(data);
  do {
    const int piece = static_cast<int>(std::min(bytes, kMpiPieceBytes));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(left, piece, MPI_BYTE, to, tag, communicator, &request), "MPI_Isend");
    requests_.push_back(request);
    left += piece;
    bytes -= piece;
  } while (bytes > 0);
}

void MpiOperation::post_recv(void* data, std::int64_t bytes, int from, int tag, MPI_Comm communicator) {
  char* left = static_cast<char*>(data);
  do {
    const int piece = static_cast<int>(std::min(bytes, kMpiPieceBytes));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(left, piece, MPI_BYTE, from, tag, communicator, &request), "MPI_Irecv");
    requests_.push_back(request);
    left += piece;
    bytes -= piece;
  } while (bytes > 0);
}

bool MpiOperation::advance() {
  while (!done_) {
    if (!started_) {
      if (stages_.empty()) {
        kept_.clear();
        return done_ = true;
      }
      stages_.front().start(*this);
      started_ = true;
    }
    int all = 1;
    std::vector<MPI_Status> statuses(requests_.size());
    if (!requests_.empty())
      check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, statuses.data()),
                what_.c_str());
    if (!all) return false;
    if (!statuses.empty()) MPI_Get_count(&statuses.front(), MPI_BYTE, &received_bytes_);
    requests_.clear();
    const Stage stage = std::move(stages_.front());
    stages_.pop_front();
    started_ = false;
    if (stage.finish) stage.finish(*this);
  }
  return true;
}

bool MpiOperation::done() {
  if (!done_) progress().poll();
  return done_;
}

void MpiOperation::wait() {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int spins = 0; !done(); ++spins) {
    if (spins < 200) continue;
    sched_yield();  // ranks may share a core
    const double waited = std::chrono::duration<double>(Clock::now() - start).count();
    if (waited > 0.005) ::usleep(50);
    if (waited > context_.timeout_seconds)
      throw PeerError(
          fmt::format("{} waited {} s for {}", context_.describe_rank(world_rank_), context_.timeout_seconds, what_));
  }
}

Work start_operation(std::shared_ptr<MpiOperation> operation) {
  progress().add(operation);
  return Work(std::move(operation));
}

}  // namespace gantry
