#include "gantry/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <thread>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/tensors/memory_meter.h"

namespace gantry {
namespace {

thread_local std::weak_ptr<NcclOperation> last_preceding;

// Time within which the device work of a member that has ended completes on the other members' devices.
constexpr std::chrono::seconds kLastWork{1};

// Thread blocks of a message's kernel, each on one multiprocessor. The other multiprocessors are left for
// computation.
constexpr int kMessageCtas = 4;

}  // namespace

std::shared_ptr<NcclOperation> take_last_preceding() { return std::exchange(last_preceding, {}).lock(); }

ncclUniqueId new_unique_id() {
  ncclUniqueId id;
  if (const ncclResult_t code = ncclGetUniqueId(&id); code != ncclSuccess)
    throw ResourceError({"nccl", fmt::format("ncclGetUniqueId failed: {}", ncclGetErrorString(code)), "",
                         "set NCCL_DEBUG=INFO to see the details"});
  return id;
}

bool NcclOperation::finished() const {
  // If issuing the operation failed, its event was never recorded, and query() returns true at once.
  if (!issued_ || !event_.query()) return false;
  // An abort also completes the event, but sets the state before.
  const std::lock_guard lock(mutex_);
  return state_ != State::kAborted;
}

void NcclOperation::issued_on(const c10::Stream& stream) {
  event_.record(stream);
  issued_ = true;
}

void NcclOperation::precede(const c10::Stream& current) {
  event_.block(current);
  last_preceding = weak_from_this();
  // On the stream that posted the operation, the memory is released now: the allocator reuses it only for
  // later work of that stream. For another stream the memory is kept until the operation is done.
  if (current == posted_on_) release();
}

void NcclOperation::release() {
  std::vector<c10::Storage> dropped;  // freed after the lock is released
  const std::lock_guard lock(mutex_);
  dropped.swap(held_);
}

void NcclOperation::end(bool done) {
  std::vector<std::function<void(bool)>> listeners;
  {
    const std::lock_guard lock(mutex_);
    state_ = done ? State::kDone : State::kAborted;
    listeners.swap(listeners_);
  }
  for (const auto& tell : listeners) tell(done);
}

void NcclOperation::when_ended(std::function<void(bool done)> then) {
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kUnderWay) return listeners_.push_back(std::move(then));
    done = state_ == State::kDone;
  }
  then(done);
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclJob> job, NcclMembers members, const ncclUniqueId& id, Use use)
    : job_(std::move(job)), members_(std::move(members)), stream_(job_->device()) {
  job_->throw_if_failed();
  const c10::DeviceGuard on_device(job_->device().device());
  job_->add(this);
  try {
    begin(id, use);
  } catch (...) {
    job_->remove(this);
    abort();
    throw;
  }
}

void NcclCommunicator::begin(const ncclUniqueId& id, Use use) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (use == Use::kMessages) config.maxCTAs = kMessageCtas;
  std::unique_lock lock(mutex_);
  const ncclResult_t code =
      ncclCommInitRankConfig(&communicator_, static_cast<int>(members_.ranks.size()), id, members_.rank, &config);
  await_call(lock, code, [this] { return members_.name + " to be made"; });
}

NcclCommunicator::~NcclCommunicator() {
  try {
    if (!job_->failed() && std::uncaught_exceptions() == 0) finalize();
  } catch (const std::exception&) {
    // The failure has ended the job; the communicator is aborted below.
  }
  job_->remove(this);
  abort();
}

void NcclCommunicator::finalize() {
  const c10::DeviceGuard on_device(job_->device().device());
  Operations done;  // freed after the lock is released
  std::unique_lock lock(mutex_);
  if (!communicator_) return;
  deregister_all(lock);
  await_call(lock, ncclCommFinalize(communicator_), [this] {
    drop_finished();
    return under_way_.empty() ? members_.name + " to finish" : under_way_.front()->describe();
  });
  done.swap(under_way_);
  for (const auto& operation : done) operation->end(/*done=*/true);
  end_with(ncclCommDestroy);
}

void* NcclCommunicator::register_memory(void* begin, std::size_t bytes) {
  const c10::DeviceGuard on_device(job_->device().device());
  std::unique_lock lock(mutex_);
  require_open();
  void* handle = nullptr;
  await_call(lock, ncclCommRegister(communicator_, begin, bytes, &handle),
             [this] { return members_.name + " to register memory"; });
  if (handle) registered_.insert(handle);  // null: NCCL does not use the registration
  return handle;
}

void NcclCommunicator::deregister(void* handle) {
  const std::lock_guard lock(mutex_);
  // An abort removes registrations itself. To remove one before, NCCL may wait for a peer that is gone.
  if (communicator_ && registered_.erase(handle) > 0) ncclCommDeregister(communicator_, handle);
}

// Tensors may outlive the communicator. Pending operations may still use their memory, so this waits for
// them. The watching thread enforces their deadline.
void NcclCommunicator::deregister_all(std::unique_lock<std::mutex>& lock) {
  while (!registered_.empty() && !under_way_.empty()) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    job_->throw_if_failed();
    lock.lock();
    drop_finished();
  }
  for (void* handle : registered_) ncclCommDeregister(communicator_, handle);
  registered_.clear();
}

void NcclCommunicator::abort() {
  const std::lock_guard lock(mutex_);
  if (!communicator_) return;
  try {
    drop_finished();
  } catch (const std::exception&) {
    // The device is broken: the state of its operations is unknown.
  }
  for (const auto& operation : under_way_) operation->end(/*done=*/false);
  end_with(ncclCommAbort);
}

// Called under the lock. The device may use the memory of pending operations until the call has returned.
void NcclCommunicator::end_with(ncclResult_t (*call)(ncclComm_t)) {
  auto held = std::make_shared<Operations>(std::move(under_way_));
  under_way_.clear();
  left_behind_ = held;
  job_->ends().start(members_.name, [call, communicator = std::exchange(communicator_, nullptr),
                                     device = job_->device().device(), held = std::move(held)]() mutable {
    const FreesCounted frees;
    const c10::DeviceGuard on_device(device);
    call(communicator);
    held.reset();
  });
}

void NcclCommunicator::require_open() const {
  job_->throw_if_failed();
  if (!communicator_)
    throw PeerError({members_.name, "its communicator was closed with the job", "calls within the body of launch", ""});
}

void NcclCommunicator::await_call(std::unique_lock<std::mutex>& lock, ncclResult_t code,
                                  const std::function<std::string()>& what) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(job_->timeout_seconds()));
  for (int round = 0; code == ncclInProgress; ++round) {
    lock.unlock();
    if (round < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    job_->throw_if_failed();
    const bool is_late = Clock::now() >= deadline;
    lock.lock();
    if (!communicator_) {
      lock.unlock();
      require_open();
    }
    if (is_late) {
      const std::string late = deadline_text(job_->describe_self(), job_->timeout_seconds(), what());
      lock.unlock();
      job_->fail(late);
      job_->throw_if_failed();
    }
    ncclResult_t state = ncclSuccess;
    code = ncclCommGetAsyncError(communicator_, &state);
    if (code == ncclSuccess) code = state;
  }
  if (code == ncclSuccess) return;
  const std::string cause = describe_error(code);
  lock.unlock();
  job_->fail(cause);
  job_->throw_if_failed();
}

std::shared_ptr<NcclOperation> NcclCommunicator::issue(std::vector<c10::Storage> held,
                                                       std::function<std::string()> what, const Calls& calls,
                                                       bool after_current) {
  const NcclDevice& device = job_->device();
  const c10::DeviceGuard on_device(device.device());
  auto operation = std::make_shared<NcclOperation>(device, std::move(held), std::move(what));
  if (after_current) {
    c10::Event ready = device.new_event();
    ready.record(device.current_stream());
    ready.block(stream());
    operation->follow(std::move(ready));
  }
  std::unique_lock lock(mutex_);
  require_open();
  ncclResult_t code = ncclGroupStart();
  if (code == ncclSuccess) {
    code = calls(communicator_, static_cast<cudaStream_t>(device.handle(stream())));
    const ncclResult_t end = ncclGroupEnd();
    if (code == ncclSuccess || code == ncclInProgress) code = end;
  }
  try {
    await_call(lock, code, [&operation] { return operation->describe(); });
  } catch (...) {
    // The device may already have the operation, so its memory is kept until the abort has removed it.
    lock.lock();
    const auto ending = left_behind_.lock();  // null: the abort has returned
    if (communicator_)
      under_way_.push_back(operation);
    else if (ending)
      ending->push_back(operation);
    lock.unlock();
    throw;
  }
  operation->issued_on(stream());
  if (under_way_.empty()) begin_oldest();
  under_way_.push_back(operation);
  drop_finished();
  return operation;
}

void NcclCommunicator::drop_finished() {
  bool dropped = false;
  while (!under_way_.empty() && under_way_.front()->finished()) {
    under_way_.front()->release();
    under_way_.front()->end(/*done=*/true);
    under_way_.pop_front();
    dropped = true;
  }
  if (dropped) begin_oldest();
}

void NcclCommunicator::begin_oldest() {
  oldest_since_ = Clock::now();
  oldest_reported_ = false;
  left_since_.reset();
}

std::string NcclCommunicator::find_ended() {
  const auto ended =
      std::find_if(members_.ranks.begin(), members_.ranks.end(), [this](int rank) { return job_->has_ended(rank); });
  if (ended == members_.ranks.end()) return "";
  if (!left_since_) left_since_ = Clock::now();
  if (Clock::now() - *left_since_ < kLastWork) return "";
  return ended_early_text(job_->describe_self(), under_way_.front()->describe(), job_->describe_rank(*ended));
}

std::string NcclCommunicator::find_trouble() {
  const std::lock_guard lock(mutex_);
  if (!communicator_) return "";
  ncclResult_t state = ncclSuccess;
  ncclResult_t code = ncclCommGetAsyncError(communicator_, &state);
  if (code == ncclSuccess) code = state;
  if (code != ncclSuccess && code != ncclInProgress) return describe_error(code);
  drop_finished();
  if (under_way_.empty()) return "";
  if (!under_way_.front()->may_have_begun()) begin_oldest();  // it still waits for computation of this rank
  if (std::string ended = find_ended(); !ended.empty()) return ended;
  const double waited = std::chrono::duration<double>(Clock::now() - oldest_since_).count();
  if (waited >= job_->notices().due_seconds() && !oldest_reported_) {
    oldest_reported_ = true;
    job_->notices().say(job_->describe_self(), waited, under_way_.front()->describe());
  }
  if (waited < job_->timeout_seconds()) return "";
  return deadline_text(job_->describe_self(), job_->timeout_seconds(), under_way_.front()->describe());
}

std::string NcclCommunicator::describe_error(ncclResult_t code) const {
  const char* last = communicator_ ? ncclGetLastError(communicator_) : nullptr;
  return fmt::format("{}: nccl: {} failed: {}{}{}; set NCCL_DEBUG=INFO to see the details", job_->describe_self(),
                     members_.name, ncclGetErrorString(code), last && *last ? ": " : "", last ? last : "");
}

}  // namespace gantry
