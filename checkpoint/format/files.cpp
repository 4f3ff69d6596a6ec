#include "gantry/checkpoint/format/files.h"

#include <fmt/format.h>
#include <new>
#include <system_error>
#include <xxhash.h>

#include "gantry/core/error.h"
#include "gantry/core/mapped_file.h"

namespace gantry {
namespace {

constexpr std::size_t kWorthAThread = std::size_t{1} << 20;  // hashing fewer bytes is as fast as starting a thread

}  // namespace

Hasher::Hasher() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_);
}

Hasher::~Hasher() { XXH3_freeState(state_); }

void Hasher::update(const void* data, std::size_t bytes) { XXH3_128bits_update(state_, data, bytes); }

std::future<void> Hasher::update_peer(const void* data, std::size_t bytes) {
  try {
    if (bytes >= kWorthAThread) return std::async(std::launch::async, [this, data, bytes] { update(data, bytes); });
  } catch (const std::system_error&) {  // no thread is available
  }
  update(data, bytes);
  return {};
}

std::string Hasher::digits() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string hash_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void HashedFile::write(const void* data, std::size_t bytes) {
  const std::future<void> hashing = hasher_.update_peer(data, bytes);
  file_.write(data, bytes);
}

std::string read_text(const std::string& path, std::uint64_t most_bytes) {
  const MappedFile file(path);
  if (file.size() == 0) throw InputError({path, "the file is empty", "", "download or write it again"});
  if (file.size() > most_bytes)
    throw InputError(
        {path, fmt::format("the file has {} bytes", file.size()), fmt::format("at most {}", most_bytes), ""});
  return std::string(file.text());
}

}  // namespace gantry
