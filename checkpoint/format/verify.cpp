#include "gantry/checkpoint/format/verify.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/checkpoint/format/companion_files.h"
#include "gantry/checkpoint/format/damage.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/core/error.h"
#include "gantry/core/mapped_file.h"

namespace gantry {
namespace {

constexpr std::uint64_t kReadAtOnce = std::uint64_t{1} << 24;

void check_companion(const std::string& folder, const Manifest& manifest, const std::string& name,
                     const std::function<void(std::uint64_t)>& hashed) {
  check_file_hash(folder, std::string(kCompanionFolder) + "/" + name, manifest.companions.at(name), hashed);
}

void verify_file(const std::string& folder, const Manifest& manifest, const std::string& name,
                 const std::function<void(std::uint64_t)>& hashed) {
  check_file_hash(folder, name, manifest.files.at(name), hashed);
  check_file_slices(manifest, name, StoredFile(folder + "/" + name));
}

}  // namespace

void check_file_hash(const std::string& folder, const std::string& name, const ManifestFile& expected,
                     const std::function<void(std::uint64_t)>& hashed) {
  const std::string path = folder + "/" + name;
  try {
    const MappedFile file(path);
    if (file.size() != expected.size)
      throw CheckpointError({path, fmt::format("the file has {} bytes", file.size()), fmt::format("{}", expected.size),
                             damage_remedy(path)});
    Hasher hasher;
    for (std::uint64_t at = 0; at < file.size(); at += kReadAtOnce) {
      const std::uint64_t bytes = std::min(kReadAtOnce, file.size() - at);
      hasher.update(file.data() + at, bytes);
      if (hashed) hashed(bytes);
    }
    if (hasher.digits() != expected.hash)
      throw CheckpointError({path, "the hash of the file is " + hasher.digits(), expected.hash, damage_remedy(path)});
  } catch (const InputError& error) {
    throw CheckpointError(std::string(error.what()) + "; " + kDamaged);
  }
}

void check_all_hashes(const std::string& folder, const Manifest& manifest,
                      const std::function<void(std::uint64_t)>& hashed) {
  for (const auto& [name, file] : manifest.files) check_file_hash(folder, name, file, hashed);
  for (const auto& [name, file] : manifest.companions) check_companion(folder, manifest, name, hashed);
}

void check_file_slices(const Manifest& manifest, const std::string& name, const StoredFile& file) {
  std::size_t expected = 0;
  for (const auto& [key, tensor] : manifest.tensors)
    for (const auto& slice : tensor.slices) {
      if (slice.file != name) continue;
      ++expected;
      const auto found = file.header().tensors.find(key);
      if (found == file.header().tensors.end())
        throw CheckpointError(
            {file.path(), "the file has no tensor '" + key + "'", "the tensors that the manifest lists", kDamaged});
      const auto shape = tensor.slice_of(slice).shape;
      if (found->second.type != tensor.type || found->second.shape != shape || !found->second.strides.empty())
        throw CheckpointError(
            {file.path() + " '" + key + "'",
             fmt::format("the tensor is {} [{}]", found->second.type->readable, fmt::join(found->second.shape, ", ")),
             fmt::format("{} [{}]", tensor.type->readable, fmt::join(shape, ", ")), kDamaged});
    }
  if (expected != file.header().tensors.size())
    throw CheckpointError({file.path(), fmt::format("the file has {} tensors", file.header().tensors.size()),
                           fmt::format("{}, as in the manifest", expected), kDamaged});
}

VerifyReport verify_checkpoint(const std::string& folder, const ByteProgress& progress) {
  VerifyReport report;
  Manifest manifest;
  try {
    manifest = read_manifest(folder);
  } catch (const CheckpointError& error) {
    report.faults.push_back(error.what());
    return report;
  }
  std::uint64_t all = 0;
  for (const auto* files : {&manifest.files, &manifest.companions})
    for (const auto& [name, file] : *files) all += file.size;
  const auto hashed = [&](std::uint64_t bytes) {
    report.bytes += bytes;
    if (progress) progress(report.bytes, all);
  };
  const auto verify = [&](const auto& check, const std::string& name) {
    try {
      check(folder, manifest, name, hashed);
    } catch (const Error& error) {
      report.faults.push_back(error.what());
    }
    ++report.files;
  };
  for (const auto& [name, file] : manifest.files) verify(verify_file, name);
  for (const auto& [name, file] : manifest.companions) verify(check_companion, name);
  return report;
}

}  // namespace gantry
