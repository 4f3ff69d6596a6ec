// The content of data files, as far as it can be compared cheaply: sizes, and a hash of pieces. Without LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gantry {

struct SampledContent {
  std::uint64_t files = 0, bytes = 0;
  std::string hash;  // XXH3-128

  bool operator==(const SampledContent&) const = default;
};

// "2 files, 4000 bytes, content 0123abcd".
std::string describe(const SampledContent& content);

// Reads at most about 64 MiB: up to 256 of the files, and evenly spaced pieces of each. A single file of up
// to 16 MiB is read completely. Names are included relative to `root` ("": not at all). `most_bytes`: only
// this number of bytes, counted over the files in order. Throws InputError if a file cannot be read.
SampledContent sample_content(const std::vector<std::filesystem::path>& files, const std::filesystem::path& root = "",
                              std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max());

nlohmann::json to_json(const std::vector<SampledContent>& contents);
// Returns an empty list for anything that to_json() has not made.
std::vector<SampledContent> contents_from_json(const nlohmann::json& value);

}  // namespace gantry
