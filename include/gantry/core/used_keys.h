// Which keys of a configuration's file a program honours. A program that writes its own loop may leave out what a key
// asks for (nobody saves to checkpoint.path): the first training step refuses such keys by name. What a program sets in
// a Config itself is its own affair.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace gantry {

struct Config;

// Shared by all copies of a Config, and by rank threads: guarded by its mutex.
class UsedKeys {
 public:
  // `key` as checked_keys() has it: "checkpoint.path", "optimizer", ...; "" for all.
  void add(const std::string& key);
  bool has(const std::string& key) const;
  // The file has this key.
  void give(const std::string& key);
  bool is_given(const std::string& key) const;

 private:
  mutable std::mutex mutex_;
  std::set<std::string> keys_, given_;
};

// All keys that somebody has to honour.
std::vector<std::string> checked_keys();

// ConfigError that names each key which is set and which nobody honours, and what would honour it.
void refuse_unused_keys(const Config& config);

}  // namespace gantry
