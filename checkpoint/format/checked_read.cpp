#include "gantry/checkpoint/format/checked_read.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gantry/checkpoint/format/damage.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr std::uint64_t kHashedAtOnce = std::uint64_t{1} << 20;  // hashed while it is in the cache

class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ < 0) throw CheckpointError({path_, std::strerror(errno), "a readable file", kDamaged});
    // Sets the kernel's largest read-ahead window. Requesting parts of the file in advance was slower.
    ::posix_fadvise(file_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  ~Reader() { ::close(file_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  std::uint64_t size() const {
    struct stat status {};
    return ::fstat(file_, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
  }

  // Reads the next bytes. Throws if the file has fewer bytes, because it was truncated in the meantime.
  void take(unsigned char* target, std::uint64_t bytes) {
    for (std::uint64_t got = 0; got < bytes;) {
      const ssize_t read = ::read(file_, target + got, bytes - got);
      if (read < 0 && errno == EINTR) continue;
      if (read <= 0)
        throw CheckpointError({path_, read < 0 ? std::strerror(errno) : "the file ends early", "", kDamaged});
      got += static_cast<std::uint64_t>(read);
    }
    hasher_.update(target, bytes);
  }
  std::string digits() const { return hasher_.digits(); }

 private:
  std::string path_;
  int file_;
  Hasher hasher_;
};

}  // namespace

void read_checked(const std::string& folder, const std::string& name, const ManifestFile& expected,
                  std::vector<WantedBytes> wanted, const std::function<void(std::uint64_t)>& taken) {
  const std::string path = folder + "/" + name;
  Reader reader(path);
  if (const auto size = reader.size(); size != expected.size)
    throw CheckpointError(
        {path, fmt::format("the file has {} bytes", size), fmt::format("{}", expected.size), damage_remedy(path)});
  std::sort(wanted.begin(), wanted.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  wanted.push_back({expected.size, 0, nullptr});
  std::vector<unsigned char> passed_over(std::min(kHashedAtOnce, expected.size));
  const auto take = [&](unsigned char* target, std::uint64_t bytes) {
    reader.take(target, bytes);
    if (taken) taken(bytes);
    return bytes;
  };
  std::uint64_t at = 0;
  for (const auto& part : wanted) {
    while (at < part.begin) at += take(passed_over.data(), std::min(kHashedAtOnce, part.begin - at));
    for (std::uint64_t done = 0; done < part.bytes;)
      done += take(part.target + done, std::min(kHashedAtOnce, part.bytes - done));
    at += part.bytes;
  }
  if (const std::string digits = reader.digits(); digits != expected.hash)
    throw CheckpointError({path, "the hash of the file is " + digits, expected.hash, damage_remedy(path)});
}

}  // namespace gantry
