#include "gantry/core/host/first_process.h"

#include <cstdlib>
#include <initializer_list>

namespace gantry {

bool is_first_process() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK"})
    if (const char* rank = std::getenv(variable)) return std::atoi(rank) == 0;
  return true;
}

}  // namespace gantry
