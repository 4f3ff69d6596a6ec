#include "gantry/trainer/model_digest.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>

#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/core/mapped_file.h"

namespace gantry {
namespace {

constexpr std::uint64_t kHashedPiece = std::uint64_t{64} << 20;  // bytes between two reports of progress

}  // namespace

std::string digest_of_files(const std::vector<std::string>& paths, const OpenProgress& progress) {
  Hasher hasher;
  for (const std::string& path : paths) {
    const MappedFile file(path);
    const std::string size = fmt::format("{}\n", file.size());
    hasher.update(size.data(), size.size());
    for (std::uint64_t done = 0, piece = 0; done < file.size(); done += piece) {
      piece = std::min(kHashedPiece, file.size() - done);
      hasher.update(file.data() + done, piece);
      progress(piece);
    }
  }
  return hasher.digits();
}

std::string digest_of_model(const std::string& directory, const OpenProgress& progress) {
  return digest_of_files(find_model_files(directory).paths, progress);
}

}  // namespace gantry
