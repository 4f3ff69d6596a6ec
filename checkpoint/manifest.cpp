#include "gantry/checkpoint/manifest.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/checkpoint/files.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

using nlohmann::json;

// Every element of the dim in exactly one slice.
void check_tiling(const ManifestTensor& tensor) {
  std::vector<Range> ranges;
  for (const auto& slice : tensor.slices) {
    if (slice.dim < 0 && tensor.slices.size() == 1) return;
    if (slice.dim < 0 || slice.dim != tensor.slices.front().dim || slice.dim >= static_cast<int>(tensor.shape.size()))
      throw CheckpointError(
          {tensor.key(), "its slices are along different dims", "slices that tile it", "the manifest is damaged"});
    ranges.insert(ranges.end(), slice.ranges.begin(), slice.ranges.end());
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::int64_t covered = 0;
  for (const Range& range : ranges) {
    if (range.size() == 0) continue;
    if (range.begin != covered) break;
    covered = range.end;
  }
  if (ranges.empty() || covered != tensor.shape[tensor.slices.front().dim])
    throw CheckpointError({tensor.key(),
                           fmt::format("its slices cover {} of {} along their dim", covered,
                                       ranges.empty() ? 0 : tensor.shape[tensor.slices.front().dim]),
                           "slices that tile it", "the manifest is damaged"});
}

std::string safe_file_name(const json& value) {
  const std::string name = value.get<std::string>();
  if (name.empty() || name.find('/') != std::string::npos || name.starts_with("."))
    throw CheckpointError({"manifest", "names the file '" + name + "'", "a file of its folder", ""});
  return name;
}

}  // namespace

json to_json(const ManifestTensor& tensor) {
  json slices = json::array();
  for (const auto& slice : tensor.slices) {
    json ranges = json::array();
    for (const Range& range : slice.ranges) ranges.push_back({range.begin, range.end});
    slices.push_back({{"file", slice.file}, {"dim", slice.dim}, {"ranges", ranges}});
  }
  return {{"kind", tensor.kind},
          {"name", tensor.name},
          {"dtype", tensor.dtype},
          {"shape", tensor.shape},
          {"slices", slices}};
}

ManifestTensor tensor_from_json(const json& value) {
  ManifestTensor tensor{value.at("kind"), value.at("name"), value.at("dtype"), value.at("shape"), {}};
  for (const auto& slice : value.at("slices")) {
    ManifestSlice part{safe_file_name(slice.at("file")), slice.at("dim"), {}};
    for (const auto& range : slice.at("ranges")) part.ranges.push_back({range.at(0), range.at(1)});
    tensor.slices.push_back(std::move(part));
  }
  return tensor;
}

json to_json(const Manifest& manifest) {
  json all = manifest.header;
  all["files"] = manifest.hashes;
  all["tensors"] = json::array();
  for (const auto& [key, tensor] : manifest.tensors) all["tensors"].push_back(to_json(tensor));
  return all;
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestName;
  json all = json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  try {
    if (!all.is_object())
      throw CheckpointError({path, "is no JSON object", "a manifest", "the checkpoint is damaged; use another"});
    if (all.at("format_version") != kManifestVersion)
      throw CheckpointError({path, "has the format version " + all.at("format_version").dump(),
                             std::to_string(kManifestVersion), "read it with the Gantry that wrote it"});
    Manifest manifest;
    for (const auto& [file, hash] : all.at("files").items())
      manifest.hashes[safe_file_name(file)] = hash.get<std::string>();
    for (const auto& value : all.at("tensors")) {
      ManifestTensor tensor = tensor_from_json(value);
      check_tiling(tensor);
      manifest.tensors.emplace(tensor.key(), std::move(tensor));
    }
    all.erase("files");
    all.erase("tensors");
    manifest.header = std::move(all);
    return manifest;
  } catch (const json::exception& error) {
    throw CheckpointError({path, error.what(), "a manifest", "the checkpoint is damaged; use another"});
  }
}

}  // namespace gantry
