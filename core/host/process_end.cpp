#include "gantry/core/host/process_end.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <unistd.h>

namespace gantry {

void skip_library_destructors() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Exit functions run in the reverse order of their registration, so this one precedes those of the libraries.
  ::on_exit(
      [](int exit_code, void*) {
        std::cout.flush();
        std::fflush(nullptr);
        ::_exit(exit_code);
      },
      nullptr);
#endif
}

}  // namespace gantry
