#include "gantry/comm/nccl/nccl_job.h"

#include <exception>
#include <fmt/format.h>
#include <numeric>

#include "gantry/comm/nccl/nccl_communicator.h"
#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/base/warning.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/memory_meter.h"

namespace gantry {
namespace {

constexpr std::chrono::milliseconds kLook{20};
constexpr Tag kClosingTag{Tag::Kind::kMetadata};

}  // namespace

NcclJob::NcclJob(Backend& base, NcclOptions options)
    : base_(base), options_(std::move(options)), device_(options_.device), notices_(options_.waits) {
  std::vector<int> everyone(base_.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  everyone_ = base_.make_group("watch", everyone);
  failure_elsewhere_ = everyone_->recv({{1}, torch::kInt64}, everyone_->rank(), kClosingTag);
  watcher_ = std::thread([this] { watch(); });
}

NcclJob::~NcclJob() { close(); }

void NcclJob::close() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  watcher_.join();
  abort_the_rest();
  wait_for_ends();
  if (failed()) return;
  try {
    everyone_->send(torch::zeros({1}, torch::kInt64), everyone_->rank(), kClosingTag);
    failure_elsewhere_.wait();
  } catch (const std::exception&) {
    // A failure of the job, which the base backend reports.
  }
}

// Aborts the groups that the program still holds, because other ranks may wait for their ends.
void NcclJob::abort_the_rest() {
  const std::lock_guard lock(mutex_);
  for (NcclCommunicator* communicator : communicators_) {
    if (!failed())
      print_warning(fmt::format("{}: nccl: {} still exists at the end of the job; its communicator is aborted",
                                describe_self(), communicator->name()));
    communicator->abort();
  }
}

// The ranks of a host wait here for each other. A process does not wait if the job has failed, or if its rank
// is throwing an exception that is not reported yet: it would wait for processes that do not know of the
// failure.
void NcclJob::wait_for_ends() {
  const bool of_processes = base_.name() != std::string("local");
  if (of_processes && std::uncaught_exceptions() > 0) return;
  const double deadline = steady_seconds() + timeout_seconds();
  const auto left = ends_.wait([&] {
    try {
      if (!failed()) failure_elsewhere_.done();
    } catch (const std::exception& error) {
      remember(error.what());
    }
    return (of_processes && failed()) || steady_seconds() >= deadline;
  });
  if (!left.empty() && !failed())
    fail(deadline_text(describe_self(), timeout_seconds(), "the other ranks to close " + left.front()));
}

void NcclJob::remember(const std::string& cause) {
  if (failure_.set(PeerError::kExitCode, cause)) changed_.notify_all();  // the watching thread aborts all
}

void NcclJob::fail(const std::string& cause) {
  remember(cause);
  base_.abort(cause);
}

void NcclJob::add(NcclCommunicator* communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.push_back(communicator);
}

void NcclJob::remove(NcclCommunicator* communicator) {
  const std::lock_guard lock(mutex_);
  std::erase(communicators_, communicator);
}

void NcclJob::look_at_communicators() {
  std::string trouble;
  {
    const std::lock_guard lock(mutex_);
    for (NcclCommunicator* communicator : communicators_) {
      if (failed()) {
        communicator->abort();
      } else if (trouble = communicator->find_trouble(); !trouble.empty()) {
        break;
      }
    }
  }
  if (!trouble.empty()) fail(trouble);
}

void NcclJob::watch() {
  const FreesCounted frees;
  const c10::DeviceGuard on_device(device_.device());
  bool aborted = false;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const auto woken = [&] { return closing_ || (!aborted && failed()); };
      changed_.wait_for(lock, kLook, woken);
      if (closing_) return;
    }
    try {
      if (!failed()) failure_elsewhere_.done();
    } catch (const std::exception& error) {
      remember(error.what());
    }
    aborted = failed();
    try {
      look_at_communicators();
    } catch (const std::exception& error) {  // calls on a broken device throw
      const std::string said = error.what();
      fail(describe_self() + ": nccl: " + said.substr(0, said.find('\n')));
    }
  }
}

}  // namespace gantry
