// Records which keys of a configuration file a program uses. A custom training loop may ignore a feature that a key
// requests (for example, never save to checkpoint.path). The first training step rejects such keys with an error that
// names them. Values that a program sets in a Config itself are not checked.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace gantry {

struct Config;

// Shared by all copies of a Config and by the threads of ranks. Thread-safe.
class UsedKeys {
 public:
  // Records that the program uses `key`, one of checked_keys() ("checkpoint.path", "optimizer", ...); "" for all.
  void add(const std::string& key);
  bool has(const std::string& key) const;
  // Records that the file sets this key.
  void give(const std::string& key);
  bool is_given(const std::string& key) const;

 private:
  mutable std::mutex mutex_;
  std::set<std::string> keys_, given_;
};

// The keys that a program must use if the file sets them.
std::vector<std::string> checked_keys();

// Throws ConfigError that names every key that the file sets but the program does not use, and the functions that use
// it.
void refuse_unused_keys(const Config& config);

}  // namespace gantry
