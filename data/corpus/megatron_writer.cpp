#include "gantry/data/corpus/megatron_writer.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/core/io/file_lock.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = 1 << 20;

// A lock on writing a file, which one process can have at a time. It ends with the process.
class WriteLock {
 public:
  // The process that had the lock before may have renamed the file meanwhile. The loop then opens a new file.
  explicit WriteLock(const std::string& path) {
    while (true) {
      file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
      if (file_ < 0)
        throw ResourceError({path, std::string("the file cannot be written: ") + std::strerror(errno), "",
                             "free some space, or choose another directory"});
      if (!try_lock(file_, path)) {
        ::close(file_);
        throw UsageError({path, "another `gantry data build` is writing this file", "one writer at a time",
                          "wait until it ends, or choose another output"});
      }
      struct stat opened {
      }, there{};
      if (::fstat(file_, &opened) == 0 && ::stat(path.c_str(), &there) == 0 && opened.st_ino == there.st_ino) return;
      ::close(file_);
    }
  }
  ~WriteLock() { ::close(file_); }
  WriteLock(const WriteLock&) = delete;
  WriteLock& operator=(const WriteLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace

// A buffered file that only this process writes.
class MegatronWriter::Output {
 public:
  explicit Output(const std::string& path) : lock_(path + DurableWay().suffix), file_(path) {
    buffer_.reserve(kBuffer);
  }

  template <class T>
  void put(const T& value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    buffer_.insert(buffer_.end(), bytes, bytes + sizeof value);
    if (buffer_.size() >= kBuffer) flush();
  }

  void finish() {
    flush();
    file_.finish();
  }
  void commit() { file_.commit(); }

 private:
  void flush() {
    file_.write(buffer_.data(), buffer_.size());
    buffer_.clear();
  }

  WriteLock lock_;
  DurableFile file_;
  std::vector<char> buffer_;
};

namespace {

template <class T, class Output>
void put_all(std::span<const std::int64_t> tokens, Output& output) {
  for (const std::int64_t token : tokens) {
    const auto value = static_cast<T>(token);
    if (static_cast<std::int64_t>(value) != token)
      throw InputError(
          {fmt::format("token {}", token), "the token does not fit into the file's type", "a larger type", ""});
    output.put(value);
  }
}

}  // namespace

MegatronWriter::MegatronWriter(const std::string& prefix, TokenType type)
    : data_path_(prefix + ".bin"),
      index_path_(prefix + ".idx"),
      type_(type),
      data_(std::make_unique<Output>(data_path_)) {}

MegatronWriter::~MegatronWriter() = default;

void MegatronWriter::append_sequence(std::span<const std::int64_t> tokens) {
  if (tokens.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw InputError({"document", fmt::format("the document has {} tokens", tokens.size()),
                      "at most 2^31 - 1 tokens in a sequence", "split it into several files"});
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
  Output index(index_path_);
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
  index.finish();
  data_->finish();
  remove_tree(index_path_, system_files());
  sync_folder(fs::path(data_path_).parent_path(), system_files());
  data_->commit();
  index.commit();
}

}  // namespace gantry
