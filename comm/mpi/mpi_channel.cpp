#include "gantry/comm/mpi/mpi_channel.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/comm/mpi/mpi_environment.h"
#include "gantry/comm/mpi/roll_call.h"
#include "gantry/core/error.h"

namespace gantry {

MpiChannel::MpiChannel(std::shared_ptr<MpiEngine> engine, std::string label, std::vector<int> ranks)
    : engine_(std::move(engine)),
      label_(std::move(label)),
      ranks_(std::move(ranks)),
      rank_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), engine_->rank()) - ranks_.begin())),
      tags_(tag_layout(mpi_largest_tag())),
      data_tags_(mpi_largest_tag()) {
  constexpr int kTag = 0;  // members make their groups in the same order, so one tag is enough
  const double seconds = engine_->timeout_seconds();
  const std::string waited = fmt::format("{} waited {} s for the ranks {} to make the group '{}' with it",
                                         describe_member(rank_), seconds, fmt::join(ranks_, ", "), label_);
  if (const auto missing = roll_call(ranks_, engine_->rank(), seconds); !missing.empty()) {
    std::vector<std::string> names;
    for (const int rank : missing) names.push_back(engine_->describe_rank(rank));
    engine_->fail(PeerError::kExitCode, fmt::format("{}; {} has not joined", waited, fmt::join(names, ", ")));
    engine_->throw_if_failed();
  }
  const Watchdog watchdog(seconds, waited);
  MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(world, size(), ranks_.data(), &members), "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, members, kTag, &heads_), "MPI_Comm_create_group");
  check_mpi(MPI_Comm_dup(heads_, &data_), "MPI_Comm_dup");
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  MPI_Comm_set_errhandler(heads_, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(data_, MPI_ERRORS_RETURN);
}

MpiChannel::~MpiChannel() {
  if (!engine_->may_free() || std::uncaught_exceptions() > 0) return;
  MPI_Comm_free(&data_);
  MPI_Comm_free(&heads_);
}

std::string MpiChannel::describe_members(const std::vector<int>& ranks) const {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(describe_member(rank));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace gantry
