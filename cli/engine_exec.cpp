#include "gantry/cli/engine_exec.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unistd.h>

#include "gantry/cli/torch_library.h"
#include "gantry/core/error.h"

namespace gantry::cli {

std::string engine_path() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "libexec/gantry/gantry-engine")
      .string();
}

void run_engine(char** argv) {
  const std::string path = engine_path();
  prepare_torch_library();
  ::execv(path.c_str(), argv);
  throw InternalError({path, std::string("the engine cannot be started: ") + std::strerror(errno),
                       "Gantry's engine next to this program", "build or install Gantry again"});
}

}  // namespace gantry::cli
