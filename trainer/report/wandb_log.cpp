#include "gantry/trainer/report/wandb_log.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/trainer/report/checksums.h"
#include "gantry/trainer/report/little_endian.h"

namespace gantry {
namespace {

constexpr std::size_t kBlock = 32768, kChunkHead = 7;  // a chunk is in one block
constexpr std::uint16_t kMagic = 0xbee1;

enum ChunkType : unsigned char { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

std::string chunk_of(ChunkType type, std::string_view bytes) {
  const std::string checked = static_cast<char>(type) + std::string(bytes);
  return little_endian(crc32_ieee(checked)) + little_endian(static_cast<std::uint16_t>(bytes.size())) + checked;
}

// The chunks of a file, one after the other.
class ChunkReader {
 public:
  explicit ChunkReader(const std::string& path) : file_(path, std::ios::binary) {}

  bool read_header() {
    const std::string header = wandb_log_header();
    return read(header.size()) && bytes_ == header;
  }

  // False at the end, or if the chunk is not complete or its check fails.
  bool next() {
    const std::size_t left = kBlock - static_cast<std::size_t>(offset_) % kBlock;
    if (left < kChunkHead && !read(left)) return false;
    begin_ = offset_;
    if (!read(kChunkHead)) return false;
    const std::string head = bytes_;
    const auto size = number_from<std::uint16_t>(std::string_view(head).substr(4));
    if (!read(size)) return false;
    type_ = static_cast<ChunkType>(head[6]);
    return number_from<std::uint32_t>(head) == crc32_ieee(head.substr(6) + bytes_);
  }

  ChunkType type() const { return type_; }
  const std::string& bytes() const { return bytes_; }
  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return offset_; }

 private:
  bool read(std::size_t size) {
    bytes_.resize(size);
    file_.read(bytes_.data(), static_cast<std::streamsize>(size));
    if (!file_) return false;
    offset_ += static_cast<std::int64_t>(size);
    return true;
  }

  std::ifstream file_;
  std::string bytes_;
  ChunkType type_ = kFull;
  std::int64_t begin_ = 0, offset_ = 0;
};

}  // namespace

std::string wandb_log_header() {
  constexpr std::uint8_t kVersion = 0;
  return ":W&B" + little_endian(kMagic) + static_cast<char>(kVersion);
}

std::string wandb_log_record(std::int64_t offset, std::string_view record) {
  std::string bytes;
  for (bool is_first = true, is_last = false; !is_last; is_first = false) {
    std::size_t left = kBlock - (static_cast<std::size_t>(offset) + bytes.size()) % kBlock;
    if (left < kChunkHead) {
      bytes.append(left, '\0');
      left = kBlock;
    }
    const std::string_view part = record.substr(0, std::min(record.size(), left - kChunkHead));
    record.remove_prefix(part.size());
    is_last = record.empty();
    bytes += chunk_of(is_first ? (is_last ? kFull : kFirst) : (is_last ? kLast : kMiddle), part);
  }
  return bytes;
}

std::int64_t read_wandb_log(const std::string& path, const std::function<bool(const WandbLogRecord&)>& use) {
  ChunkReader chunks(path);
  if (!chunks.read_header()) return 0;
  std::int64_t end = chunks.end(), begin = 0;
  std::string record;
  bool is_open = false;
  while (chunks.next()) {
    const bool begins = chunks.type() == kFull || chunks.type() == kFirst;
    if (begins == is_open) break;
    if (begins) {
      begin = chunks.begin();
      record.clear();
    }
    record += chunks.bytes();
    is_open = chunks.type() == kFirst || chunks.type() == kMiddle;
    if (is_open) continue;
    if (!use({.bytes = record, .begin = begin, .end = chunks.end()})) break;
    end = chunks.end();
  }
  return end;
}

WandbLog::WandbLog(const std::string& path, std::int64_t offset)
    : path_(path), file_(std::fopen(path.c_str(), offset == 0 ? "wb" : "r+b"), &std::fclose), offset_(offset) {
  const bool is_ready =
      file_ && ::ftruncate(fileno(file_.get()), offset) == 0 && std::fseek(file_.get(), 0, SEEK_END) == 0;
  if (!is_ready) throw ResourceError({path_, std::strerror(errno), "a writable file", "choose another `output`"});
  if (offset == 0) write(wandb_log_header());
}

void WandbLog::append(std::string_view record) { write(wandb_log_record(offset_, record)); }

void WandbLog::write(const std::string& bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size() || std::fflush(file_.get()) != 0)
    throw ResourceError({path_, std::strerror(errno), "disk space for another record", "free some space"});
  offset_ += static_cast<std::int64_t>(bytes.size());
}

}  // namespace gantry
