#include "gantry/launch/supervisor/open_files.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "gantry/core/error.h"

namespace gantry::launcher {
namespace {

constexpr rlim_t kOwnFiles = 64;

}  // namespace

void allow_open_files(int ranks, int per_rank) {
  const rlim_t needed = kOwnFiles + static_cast<rlim_t>(ranks) * static_cast<rlim_t>(per_rank);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed)
    throw ResourceError({"gantry launch",
                         fmt::format("{} ranks need {} open files, and the limit is {}", ranks, needed, limit.rlim_max),
                         "a higher limit", fmt::format("raise it: ulimit -n {}", needed)});
  limit.rlim_cur = needed;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace gantry::launcher
