#include "gantry/comm/nccl/nccl_job.h"

#include <algorithm>
#include <numeric>

#include "gantry/comm/nccl/nccl_communicator.h"
#include "gantry/core/error.h"
#include "gantry/core/steady_seconds.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/memory_meter.h"

namespace gantry {
namespace {

constexpr std::chrono::milliseconds kLook{20};
constexpr Tag kClosingTag{Tag::Kind::kMetadata};
constexpr double kAbortSeconds = 10;

}  // namespace

NcclJob::NcclJob(Backend& base, NcclOptions options)
    : base_(base), options_(std::move(options)), device_(options_.device), notices_(options_.waits) {
  std::vector<int> everyone(base_.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  everyone_ = base_.make_group("watch", everyone);
  failure_elsewhere_ = everyone_->recv({{1}, torch::kInt64}, everyone_->rank(), kClosingTag);
  watcher_ = std::thread([this] { watch(); });
}

NcclJob::~NcclJob() {
  try {
    close();
  } catch (const std::exception&) {
    // A failure that whoever asked has heard of.
  }
}

void NcclJob::close() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  watcher_.join();
  wait_for_ends();
  if (failed()) return;
  everyone_->send(torch::zeros({1}, torch::kInt64), everyone_->rank(), kClosingTag);
  failure_elsewhere_.wait();
}

// The ranks of a host wait here for each other. A failed job has reported its failure, and waits for its processes no
// longer than their aborts should take.
void NcclJob::wait_for_ends() {
  const double begin = steady_seconds();
  const bool had_failed = failed();
  const double limit = had_failed ? std::min(kAbortSeconds, timeout_seconds()) : timeout_seconds();
  bool failed_elsewhere = false;
  const auto left = ends_.wait([&] {
    try {
      if (!had_failed) failure_elsewhere_.done();
    } catch (const std::exception& error) {
      remember(error.what());
      failed_elsewhere = true;
    }
    return failed_elsewhere || steady_seconds() - begin >= limit;
  });
  if (left.empty() || failed()) return;
  fail(deadline_text(describe_self(), timeout_seconds(), "the other ranks to close " + left.front()));
}

void NcclJob::remember(const std::string& cause) {
  if (failure_.set(PeerError::kExitCode, cause)) changed_.notify_all();  // the watching thread aborts all at once
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
    } catch (const std::exception& error) {  // a device that is broken answers no question
      const std::string said = error.what();
      fail(describe_self() + ": nccl: " + said.substr(0, said.find('\n')));
    }
  }
}

}  // namespace gantry
