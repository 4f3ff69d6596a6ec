// Files that are kept open after a read. Each is a mapping. A process can have about 65,530 mappings, but a
// checkpoint may have more files than that, one per rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace gantry {

template <class File>
class OpenFiles {
 public:
  static constexpr std::size_t kMost = 256;

  // The file with this name, opened by `open` if it is not open. Valid until the next call.
  const File& get(const std::string& name, const std::function<std::unique_ptr<File>()>& open) {
    auto found = files_.find(name);
    if (found == files_.end()) {
      auto opened = open();
      if (files_.size() == kMost)
        files_.erase(std::min_element(files_.begin(), files_.end(),
                                      [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
      found = files_.emplace(name, Entry{std::move(opened), 0}).first;
    }
    found->second.used = ++uses_;
    return *found->second.file;
  }
  std::size_t size() const { return files_.size(); }

 private:
  struct Entry {
    std::unique_ptr<File> file;
    std::uint64_t used;
  };
  std::map<std::string, Entry> files_;
  std::uint64_t uses_ = 0;
};

}  // namespace gantry
