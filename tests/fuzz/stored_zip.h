// Writes files in the form of torch.save.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gantry::fuzz {

inline void append_number(std::string& text, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
}

// A zip file with uncompressed entries. The checksums are 0, because the reader does not check them.
inline std::string stored_zip(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string file, directory;
  for (const auto& [name, bytes] : entries) {
    const std::uint64_t at = file.size();
    file += "PK\3\4";
    append_number(file, 0, 14);
    append_number(file, bytes.size(), 4);
    append_number(file, bytes.size(), 4);
    append_number(file, name.size(), 2);
    append_number(file, 0, 2);
    file += name + bytes;
    directory += "PK\1\2";
    append_number(directory, 0, 16);
    append_number(directory, bytes.size(), 4);
    append_number(directory, bytes.size(), 4);
    append_number(directory, name.size(), 2);
    append_number(directory, 0, 12);
    append_number(directory, at, 4);
    directory += name;
  }
  const std::uint64_t begin = file.size();
  file += directory + "PK\5\6";
  append_number(file, 0, 4);
  append_number(file, entries.size(), 2);
  append_number(file, entries.size(), 2);
  append_number(file, directory.size(), 4);
  append_number(file, begin, 4);
  append_number(file, 0, 2);
  return file;
}

// A file with this pickle, and storages of 64 and 0 bytes.
inline std::string torch_file(std::string_view pickle) {
  return stored_zip({{"f/data.pkl", std::string(pickle)},
                     {"f/byteorder", "little"},
                     {"f/data/0", std::string(64, '\1')},
                     {"f/data/1", ""}});
}

}  // namespace gantry::fuzz
