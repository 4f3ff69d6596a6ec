#include "gantry/data/encoding_cache.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <tuple>
#include <unistd.h>

#include "gantry/checkpoint/format/files.h"
#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/base/warning.h"
#include "gantry/core/error.h"
#include "gantry/core/host/usable_cores.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/core/io/file_lock.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

// Raise it with each change of the tokens or ranges that some text gets.
constexpr int kEncodingVersion = 3;
constexpr std::uint64_t kLeastCachedBytes = 1 << 20;  // encoding less text takes no time
constexpr double kStalledSeconds = 60;                // without progress of another process that encodes
constexpr auto kLockPause = std::chrono::milliseconds(50);

using Rows = std::shared_ptr<const EncodedRows>;

std::string default_cache_folder() {
  const char* stated = std::getenv("XDG_CACHE_HOME");
  if (stated && *stated == '/') return std::string(stated) + "/gantry/data";
  const char* home = std::getenv("HOME");
  return home && *home == '/' ? std::string(home) + "/.cache/gantry/data" : "";
}

void hash_file(const fs::path& path, Hasher& hasher, const OpenProgress& progress) {
  const MappedFile file(path);
  const std::string size = fmt::format("\n{}\n", file.size());
  hasher.update(size.data(), size.size());
  hasher.update(file.data(), file.size());
  progress(file.size());
}

std::string key_of(const EncodingInput& input, const std::string& state, const OpenProgress& progress) {
  Hasher hasher;
  const std::string facts = fmt::format("{}\n{}\n", kEncodingVersion, input.rules);
  hasher.update(facts.data(), facts.size());
  hasher.update(state.data(), state.size());
  if (!is_byte_tokenizer(input.tokenizer))
    for (const fs::path& file : tokenizer_files(input.tokenizer)) {
      const std::string name = file.filename().string();
      hasher.update(name.data(), name.size());
      hash_file(file, hasher, progress);
    }
  for (const fs::path& file : input.files) hash_file(file, hasher, progress);
  return hasher.digits();
}

// Writes the rows to an unnamed file in memory, which grows without a copy.
Rows rows_in_memory(const EncodeRows& encode) {
  const int memory = ::memfd_create("gantry encoded rows", MFD_CLOEXEC);
  const auto fail = [] {
    throw ResourceError({"encoded data", std::string("there is no memory: ") + std::strerror(errno), "",
                         "set data.cache to a directory"});
  };
  if (memory < 0) fail();
  const std::unique_ptr<const int, void (*)(const int*)> closed(&memory, [](const int* file) { ::close(*file); });
  EncodedRowsWriter writer([&](const void* data, std::size_t bytes) {
    const auto* left = static_cast<const std::byte*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(memory, left, bytes);
      if (written < 0 && errno != EINTR) fail();
      if (written < 0) continue;
      left += written;
      bytes -= static_cast<std::size_t>(written);
    }
  });
  encode(writer);
  return std::make_shared<const EncodedRows>(MappedFile(memory, "encoded data"));
}

Rows rows_of_file(const std::string& path) {
  if (!path_exists(path)) return nullptr;
  auto rows = std::make_shared<const EncodedRows>(MappedFile(path));
  return rows->is_sound() ? rows : nullptr;
}

// The lock of the process that encodes. The modification time of its file is the time of the last progress.
class EncodingLock {
 public:
  explicit EncodingLock(std::string path)
      : path_(std::move(path)), file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {}
  ~EncodingLock() {
    if (file_ < 0) return;
    if (is_held_) ::unlink(path_.c_str());
    ::close(file_);
  }
  EncodingLock(const EncodingLock&) = delete;
  EncodingLock& operator=(const EncodingLock&) = delete;

  bool is_open() const { return file_ >= 0; }
  bool take() { return is_held_ = gantry::try_lock(file_, path_); }
  void touch() const { ::futimens(file_, nullptr); }
  // Differs after each touch().
  std::pair<std::int64_t, std::int64_t> last_touch() const {
    struct stat status {};
    ::fstat(file_, &status);
    return {status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
  }

 private:
  std::string path_;
  int file_;
  bool is_held_ = false;
};

void warn_of_cache(const std::string& folder, const std::string& reason) {
  static std::once_flag has_warned;
  std::call_once(has_warned, [&] {
    print_warning(fmt::format("data.cache: {}: {}; the encoded data are kept in memory", folder, reason));
  });
}

// Removes files of processes that ended while they wrote the rows of `key`, or others a day ago.
void remove_partial_files(const std::string& folder, const std::string& key) {
  const auto yesterday = fs::file_time_type::clock::now() - std::chrono::hours(24);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".partial") continue;
    std::error_code failure;  // another process may have removed it
    const auto written = fs::last_write_time(entry.path(), failure);
    if (entry.path().filename().string().starts_with(key) || (!failure && written < yesterday))
      ::unlink(entry.path().c_str());
  }
}

Rows write_rows(const std::string& path, const EncodingLock& lock, const EncodeRows& encode) {
  DurableFile file(path, system_files(),
                   {.suffix = fmt::format(".{}.partial", ::getpid()), .is_synced = false, .syncs_folder = false});
  EncodedRowsWriter writer([&](const void* data, std::size_t bytes) {
    file.write(data, bytes);
    lock.touch();
  });
  encode(writer);
  file.commit();
  return rows_of_file(path);
}

// Null if the directory cannot be used, or if another process has stopped while it encodes.
Rows rows_in_folder(const std::string& folder, const std::string& key, const OpenProgress& progress,
                    const EncodeRows& encode) {
  make_folders(folder);
  const std::string path = folder + "/" + key + ".rows";
  EncodingLock lock(path + ".lock");
  if (!lock.is_open()) throw std::system_error(errno, std::generic_category());
  auto touched = lock.last_touch();
  for (double moved = steady_seconds(); !lock.take(); std::this_thread::sleep_for(kLockPause)) {
    if (const auto now = lock.last_touch(); now != touched) {
      touched = now;
      moved = steady_seconds();
      progress(1);
    }
    if (steady_seconds() - moved < kStalledSeconds) continue;
    warn_of_cache(folder, fmt::format("another process has encoded nothing for {} s", kStalledSeconds));
    return nullptr;
  }
  if (Rows rows = rows_of_file(path)) return rows;
  remove_partial_files(folder, key);
  return write_rows(path, lock, encode);
}

Rows find_or_encode(const std::string& folder, const EncodingInput& input, const OpenProgress& progress,
                    const EncodeRows& encode) {
  std::uint64_t bytes = 0;
  for (const fs::path& file : input.files) {
    std::error_code failure;  // reading the file reports it
    bytes += fs::file_size(file, failure);
  }
  const bool is_known = is_byte_tokenizer(input.tokenizer) || path_exists(input.tokenizer);  // else encode() throws
  if (folder.empty() || !is_known) return rows_in_memory(encode);
  const std::string state = input.state ? input.state(progress) : "";
  if (bytes < kLeastCachedBytes && state.empty()) return rows_in_memory(encode);
  const std::string key = key_of(input, state, progress);
  if (Rows rows = rows_of_file(folder + "/" + key + ".rows")) return rows;
  try {
    if (Rows rows = rows_in_folder(folder, key, progress, encode)) return rows;
  } catch (const ResourceError& error) {  // the directory is full or read-only
    warn_of_cache(folder, error.what());
  } catch (const std::system_error& error) {
    warn_of_cache(folder, error.what());
  }
  return rows_in_memory(encode);
}

}  // namespace

std::vector<fs::path> tokenizer_files(const std::string& tokenizer) {
  if (!is_folder(tokenizer)) return {tokenizer};
  const std::set<std::string> kinds = {".json", ".jinja", ".model", ".tiktoken", ".txt"};
  std::vector<fs::path> files;
  for (const fs::path& folder : {fs::path(tokenizer), fs::path(tokenizer) / "additional_chat_templates"}) {
    if (!is_folder(folder.string())) continue;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.is_regular_file() && kinds.contains(entry.path().extension().string())) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

EncodingResources encoding_resources(const DataConfig& data) {
  const std::string folder = data.cache == "auto" ? default_cache_folder() : data.cache == "never" ? "" : data.cache;
  return {.cache = folder, .threads = data.workers};
}

std::size_t encoding_threads(const EncodingResources& resources) {
  return static_cast<std::size_t>(resources.threads > 0 ? resources.threads : usable_cores());
}

Rows encoded_rows(const std::string& folder, const EncodingInput& input, const OpenProgress& progress,
                  const EncodeRows& encode) {
  static std::mutex mutex;
  static std::map<std::tuple<std::vector<fs::path>, std::string, std::string>, std::weak_ptr<const EncodedRows>> all;
  const std::lock_guard lock(mutex);
  auto& known = all[{input.files, input.tokenizer, input.rules}];
  Rows rows = known.lock();
  if (!rows) known = rows = find_or_encode(folder, input, progress, encode);
  return rows;
}

}  // namespace gantry
