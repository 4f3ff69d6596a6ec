#include "gantry/comm/processes/process_backend.h"

#include <exception>

#include "gantry/comm/processes/group_channel.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

// Keeps engines that could not be closed or abandoned, because the transport may still write to their memory.
void keep_for_good(std::shared_ptr<ProcessEngine> engine) {
  static auto* kept = new std::vector<std::shared_ptr<ProcessEngine>>;
  kept->push_back(std::move(engine));
}

}  // namespace

std::unique_ptr<ProcessBackend> make_process_backend(std::unique_ptr<Transport> transport,
                                                     std::shared_ptr<KnownFailures> failures, const WaitLimits& waits,
                                                     std::function<std::string(int)> describe_rank,
                                                     ProcessLimits limits) {
  return std::make_unique<ProcessBackend>(std::make_shared<ProcessEngine>(std::move(transport), std::move(failures),
                                                                          waits, std::move(describe_rank), limits));
}

ProcessBackend::~ProcessBackend() {
  if (engine_->closed()) return;
  try {
    if (!engine_->failures().failed() && std::uncaught_exceptions() == 0) engine_->close();
  } catch (const std::exception&) {
    // A caller that needs the error has called close() before.
  }
  if (!engine_->closed() && !engine_->abandon()) keep_for_good(engine_);
}

const char* ProcessBackend::name() const { return engine_->transport().name(); }
int ProcessBackend::rank() const { return engine_->rank(); }
int ProcessBackend::size() const { return engine_->size(); }

std::unique_ptr<ProcessGroup> ProcessBackend::make_group(const std::string& label, const std::vector<int>& ranks) {
  engine_->failures().throw_if_failed();
  return make_message_group(std::make_shared<GroupChannel>(engine_, label, ranks));
}

void ProcessBackend::abort(const std::string& reason) { engine_->fail(PeerError::kExitCode, reason); }

bool ProcessBackend::has_ended(int rank) const { return engine_->failures().find_ended({rank}) >= 0; }

void ProcessBackend::close() { engine_->close(); }

}  // namespace gantry
