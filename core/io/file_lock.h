// Exclusive locks of files and directories, which end with the process (flock).
#pragma once

#include <string>

namespace gantry {

// Locks an open file or directory. Returns false if another process or descriptor holds the lock. If the file system
// has no locks (Lustre without -o flock, some network file systems), prints a warning, once per process, and returns
// true.
bool try_lock(int file, const std::string& path);

}  // namespace gantry
