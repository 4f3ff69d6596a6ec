#include "gantry/checkpoint/format/damage.h"

#include <fstream>

#include "gantry/core/io/strict_json.h"

namespace gantry {

std::string file_likeness(const std::string& path) {
  char start[64];
  std::ifstream file(path, std::ios::binary);
  file.read(start, sizeof(start));
  const std::string like = likeness({start, static_cast<std::size_t>(file.gcount())});
  return like.empty() ? "" : "it looks like " + like;
}

std::string damage_remedy(const std::string& path) {
  const std::string like = file_likeness(path);
  return like.empty() ? kDamaged : like;
}

}  // namespace gantry
