// Nonblocking operations over MPI, and the one path on which they progress.
//
// An operation is a list of stages; each stage posts messages, and when all of them are done its `finish` runs and the
// next one starts. Every wait drives all outstanding operations of the process, so that a rank that waits for one thing
// still serves its peers. The list of outstanding operations is guarded by a mutex.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mpi.h>
#include <mutex>
#include <vector>

#include "gantry/comm/work.h"

namespace gantry {

struct MpiContext {
  double timeout_seconds = 60;
  std::function<std::string(int)> describe_rank;  // by world rank
};

// Messages longer than this travel in pieces, since MPI counts in int.
inline constexpr std::int64_t kMpiPieceBytes = std::int64_t{1} << 30;

void check_mpi(int code, const char* call);  // PeerError with MPI's words

class MpiOperation : public Work::State {
 public:
  struct Stage {
    std::function<void(MpiOperation&)> start;   // posts messages
    std::function<void(MpiOperation&)> finish;  // runs when they are done; may be empty
  };
  MpiOperation(const MpiContext& context, int world_rank, std::string what, std::vector<Stage> stages);

  void post_send(const void* data, std::int64_t bytes, int to, int tag, MPI_Comm communicator);
  void post_recv(void* data, std::int64_t bytes, int from, int tag, MPI_Comm communicator);
  int received_bytes() const { return received_bytes_; }  // of the last stage's first message
  void insert_next(Stage stage) { stages_.push_front(std::move(stage)); }

  bool done() override;
  void wait() override;
  torch::Tensor result() override { return result_; }

  bool advance();  // called by the progress path only
  void keep(torch::Tensor tensor) { kept_.push_back(std::move(tensor)); }
  void set_result(torch::Tensor tensor) { result_ = std::move(tensor); }

 private:
  const MpiContext& context_;
  int world_rank_;
  std::string what_;
  std::deque<Stage> stages_;
  std::vector<MPI_Request> requests_;
  std::vector<torch::Tensor> kept_;
  torch::Tensor result_;
  int received_bytes_ = 0;
  bool started_ = false;
  bool done_ = false;
};

// Starts an operation and hands it to the progress path.
Work start_operation(std::shared_ptr<MpiOperation> operation);

}  // namespace gantry
