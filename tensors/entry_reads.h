// The entries that a model and its criterion read from TensorDicts.
#pragma once

#include <set>
#include <string>

namespace gantry {

// While it exists, records the names that this thread reads by at(), get() and take(). The innermost one records.
class EntryReads {
 public:
  EntryReads();
  ~EntryReads();
  EntryReads(const EntryReads&) = delete;
  EntryReads& operator=(const EntryReads&) = delete;

  bool has(const std::string& name) const { return names_.contains(name); }
  // Called by TensorDict. No effect without an EntryReads on this thread.
  static void note(const std::string& name);

 private:
  std::set<std::string> names_;
  EntryReads* outer_;
};

}  // namespace gantry
