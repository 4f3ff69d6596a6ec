#include "gantry/cli/doctor_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "gantry/cli/engine_exec.h"
#include "gantry/cli/torch_library.h"
#include "gantry/core/host/usable_cores.h"
#include "gantry/core/io/output.h"
#include "gantry/core/version.h"

namespace gantry::cli {

void show_doctor(bool as_json) {
  const double gigabytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / 1e9;
  if (as_json)
    return print_output(nlohmann::ordered_json{{"version", GANTRY_VERSION},
                                               {"cores", usable_cores()},
                                               {"memory_gb", gigabytes},
                                               {"engine", engine_path()},
                                               {"libtorch", describe(find_torch_library())},
                                               {"backends", GANTRY_BACKENDS}}
                            .dump(2) +
                        "\n");
  print_output(fmt::format("gantry {}\ncores: {}\nmemory: {:.1f} GB\nengine: {}\nLibTorch: {}\nbackends: {}\n",
                           GANTRY_VERSION, usable_cores(), gigabytes, engine_path(), describe(find_torch_library()),
                           GANTRY_BACKENDS));
}

}  // namespace gantry::cli
