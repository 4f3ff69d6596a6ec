#include "gantry/checkpoint/format/sampled_content.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/format/files.h"
#include "gantry/core/io/strict_json.h"
#include "gantry/core/mapped_file.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kSampledFiles = 256;
constexpr std::uint64_t kSampledPiece = 1 << 14, kLeastOfFile = 1 << 18, kOfAllFiles = 1 << 24;

struct SampledPart {
  fs::path path;
  std::uint64_t bytes;
};

std::vector<SampledPart> first_bytes(const std::vector<fs::path>& files, std::uint64_t most_bytes) {
  std::vector<SampledPart> parts;
  for (const fs::path& path : files) {
    if (most_bytes == 0) break;
    std::error_code failure;
    const std::uint64_t size = fs::file_size(path, failure);
    parts.push_back({path, std::min(failure ? 0 : size, most_bytes)});
    most_bytes -= parts.back().bytes;
  }
  return parts;
}

// Hashes all bytes, or evenly spaced pieces including the first and the last one.
void add_pieces(Hasher& hasher, const SampledPart& part, std::uint64_t budget) {
  const MappedFile file(part.path);
  const std::uint64_t bytes = std::min<std::uint64_t>(part.bytes, file.size());
  if (bytes <= budget) return hasher.update(file.data(), bytes);
  const std::uint64_t pieces = budget / kSampledPiece, last = bytes - kSampledPiece;
  for (std::uint64_t i = 0; i < pieces; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(pieces - 1);
    hasher.update(file.data() + static_cast<std::uint64_t>(share * static_cast<double>(last)), kSampledPiece);
  }
}

}  // namespace

std::string describe(const SampledContent& content) {
  return fmt::format("{}{} bytes, content {}", content.files == 1 ? "" : fmt::format("{} files, ", content.files),
                     content.bytes, content.hash.substr(0, 8));
}

SampledContent sample_content(const std::vector<fs::path>& files, const fs::path& root, std::uint64_t most_bytes) {
  const std::vector<SampledPart> parts = first_bytes(files, most_bytes);
  const std::size_t sampled = std::min(parts.size(), kSampledFiles);
  const std::uint64_t budget = sampled == 0 ? 0 : std::max<std::uint64_t>(kLeastOfFile, kOfAllFiles / sampled);
  SampledContent content{.files = parts.size()};
  Hasher hasher;
  for (const SampledPart& part : parts) {
    const std::string name = root.empty() ? "" : part.path.lexically_relative(root).string();
    const std::string facts = fmt::format("{}:{}\n", name, part.bytes);
    hasher.update(facts.data(), facts.size());
    content.bytes += part.bytes;
  }
  for (std::size_t i = 0; i < sampled; ++i) add_pieces(hasher, parts[i * parts.size() / sampled], budget);
  content.hash = hasher.digits();
  return content;
}

json to_json(const std::vector<SampledContent>& contents) {
  json all = json::array();
  for (const auto& [files, bytes, hash] : contents) all.push_back({{"files", files}, {"bytes", bytes}, {"hash", hash}});
  return all;
}

std::vector<SampledContent> contents_from_json(const json& value) {
  std::vector<SampledContent> contents;
  if (!value.is_array()) return contents;
  for (const json& one : value) {
    if (!one.is_object()) return {};
    const auto count = [&](const char* key) { return count_in(one.value(key, json())); };
    if (!count("files") || !count("bytes") || !one.value("hash", json()).is_string()) return {};
    contents.push_back({static_cast<std::uint64_t>(*count("files")), static_cast<std::uint64_t>(*count("bytes")),
                        one["hash"].get<std::string>()});
  }
  return contents;
}

}  // namespace gantry
