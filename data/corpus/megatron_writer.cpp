#include "gantry/data/corpus/megatron_writer.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = 1 << 20;

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  throw ResourceError({path.string(), what + ": " + std::strerror(errno), "a folder with room that can be written to",
                       "free space there, or write elsewhere"});
}

fs::path partial(const fs::path& path) { return path.string() + ".partial"; }

void rename_over(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) refuse(to, "can't be renamed to");
}

void sync_folder(const fs::path& folder) {
  const int file = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) refuse(folder, "can't be opened");
  const bool is_synced = ::fsync(file) == 0 || errno == EINVAL;
  ::close(file);
  if (!is_synced) refuse(folder, "can't be synced");  // some file systems have no sync of folders
}

}  // namespace

// A partial file, buffered; removed unless it was kept.
class MegatronWriter::Output {
 public:
  explicit Output(fs::path path) : path_(std::move(path)) {
    open_alone();
    if (::ftruncate(file_, 0) != 0) refuse(path_, "can't be written");
    buffer_.reserve(kBuffer);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    ::close(file_);
    std::error_code ignored;
    if (!is_kept_) fs::remove(path_, ignored);
  }

  template <class T>
  void put(const T& value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    buffer_.insert(buffer_.end(), bytes, bytes + sizeof value);
    if (buffer_.size() >= kBuffer) flush();
  }

  void sync() {
    flush();
    if (::fsync(file_) != 0) refuse(path_, "can't be synced");
  }
  void keep() { is_kept_ = true; }

 private:
  // With a lock that ends with the process; a file system without locks has none. Who held it before may have given the
  // file its name in the meantime: then the next one is opened.
  void open_alone() {
    while (true) {
      file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
      if (file_ < 0) refuse(path_, "can't be written");
      if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        ::close(file_);
        throw UsageError({path_.string(), "is being written by another `gantry data build`", "one at a time",
                          "wait for its end, or choose another output"});
      }
      struct stat opened {
      }, there{};
      if (::fstat(file_, &opened) == 0 && ::stat(path_.c_str(), &there) == 0 && opened.st_ino == there.st_ino) return;
      ::close(file_);
    }
  }

  void flush() {
    for (std::size_t done = 0; done < buffer_.size();) {
      const ssize_t written = ::write(file_, buffer_.data() + done, buffer_.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) refuse(path_, "can't be written");
      done += static_cast<std::size_t>(written);
    }
    buffer_.clear();
  }

  fs::path path_;
  int file_ = -1;
  std::vector<char> buffer_;
  bool is_kept_ = false;
};

namespace {

template <class T, class Output>
void put_all(std::span<const std::int64_t> tokens, Output& output) {
  for (const std::int64_t token : tokens) {
    const auto value = static_cast<T>(token);
    if (static_cast<std::int64_t>(value) != token)
      throw InputError({fmt::format("token {}", token), "does not fit into the file's type", "a larger type", ""});
    output.put(value);
  }
}

}  // namespace

MegatronWriter::MegatronWriter(const std::string& prefix, TokenType type)
    : data_path_(prefix + ".bin"),
      index_path_(prefix + ".idx"),
      type_(type),
      data_(std::make_unique<Output>(partial(data_path_))) {}

MegatronWriter::~MegatronWriter() = default;

void MegatronWriter::append_sequence(std::span<const std::int64_t> tokens) {
  if (tokens.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw InputError({"document", fmt::format("has {} tokens", tokens.size()), "at most 2^31 - 1 in a sequence",
                      "give it in several files"});
  switch (type_) {
    case TokenType::kUint8:
      put_all<std::uint8_t>(tokens, *data_);
      break;
    case TokenType::kInt8:
      put_all<std::int8_t>(tokens, *data_);
      break;
    case TokenType::kInt16:
      put_all<std::int16_t>(tokens, *data_);
      break;
    case TokenType::kInt32:
      put_all<std::int32_t>(tokens, *data_);
      break;
    case TokenType::kInt64:
      put_all<std::int64_t>(tokens, *data_);
      break;
    case TokenType::kFloat64:
      put_all<double>(tokens, *data_);
      break;
    case TokenType::kFloat32:
      put_all<float>(tokens, *data_);
      break;
    case TokenType::kUint16:
      put_all<std::uint16_t>(tokens, *data_);
      break;
  }
  lengths_.push_back(static_cast<std::int32_t>(tokens.size()));
  tokens_ += static_cast<std::int64_t>(tokens.size());
}

void MegatronWriter::end_document() { documents_.push_back(static_cast<std::int64_t>(lengths_.size())); }

void MegatronWriter::finish() {
  Output index(partial(index_path_));
  for (const char c : {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'}) index.put(c);
  index.put(std::uint64_t{1});
  index.put(static_cast<std::uint8_t>(type_));
  index.put(static_cast<std::uint64_t>(lengths_.size()));
  index.put(static_cast<std::uint64_t>(documents_.size()));
  for (const std::int32_t length : lengths_) index.put(length);
  std::int64_t place = 0;
  for (const std::int32_t length : lengths_) {
    index.put(place);
    place += length * token_type_bytes(type_);
  }
  for (const std::int64_t first : documents_) index.put(first);
  index.sync();
  data_->sync();
  std::error_code failure;
  fs::remove(index_path_, failure);
  sync_folder(data_path_.parent_path());
  rename_over(partial(data_path_), data_path_);
  data_->keep();
  rename_over(partial(index_path_), index_path_);
  index.keep();
  sync_folder(data_path_.parent_path());
}

}  // namespace gantry
