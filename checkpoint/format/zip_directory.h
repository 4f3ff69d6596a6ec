// The entries of a zip file, as torch.save writes it: stored without compression. Without LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace gantry {

// The position of an entry's bytes in the file.
struct ZipEntry {
  std::uint64_t begin = 0, bytes = 0;
};

// True if the file has the beginning of a zip file.
bool is_zip(std::string_view file);

// Reads the directory at the end of `file`, the bytes of the file `path`. All positions are checked. Throws InputError
// for a damaged file, for compressed or encrypted entries, and for two entries with the same name.
std::map<std::string, ZipEntry> read_zip_directory(std::string_view file, const std::string& path);

}  // namespace gantry
