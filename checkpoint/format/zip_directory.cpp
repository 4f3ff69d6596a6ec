#include "gantry/checkpoint/format/zip_directory.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <vector>

#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr std::string_view kLocal = "PK\3\4", kCentral = "PK\1\2", kEnd = "PK\5\6", kEnd64 = "PK\6\6",
                           kLocator64 = "PK\6\7";
constexpr std::uint64_t kEndBytes = 22, kLongestComment = 65535, kLocator64Bytes = 20, kEnd64Bytes = 56,
                        kCentralBytes = 46, kLocalBytes = 30;
constexpr std::uint64_t kIn64 = 0xFFFFFFFF;  // the value is in the zip64 field
constexpr std::uint16_t kZip64Field = 1, kEncrypted = 1;

class ZipReader {
 public:
  ZipReader(std::string_view file, const std::string& path) : file_(file), path_(path) {}

  std::map<std::string, ZipEntry> entries() {
    find_directory();
    std::map<std::string, ZipEntry> found;
    std::uint64_t at = begin_;
    for (std::uint64_t i = 0; i < count_; ++i) {
      const auto [name, entry] = entry_at(at);
      if (!found.emplace(name, entry).second) refuse("it has two entries '" + printable(name) + "'");
    }
    return found;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError({path_, what, "a complete file of torch.save", "download or write it again"});
  }

  static std::string printable(std::string name) {
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return c < 32 || c > 126; }, '?');
    return name.substr(0, 200);
  }

  std::string_view part(std::uint64_t begin, std::uint64_t bytes) const {
    if (begin > file_.size() || bytes > file_.size() - begin)
      refuse(fmt::format("its zip directory refers to the bytes {} to {} of {}", begin, begin + bytes, file_.size()));
    return file_.substr(begin, bytes);
  }

  template <class Number>
  std::uint64_t number(std::uint64_t at) const {
    Number value = 0;
    std::memcpy(&value, part(at, sizeof(Number)).data(), sizeof(Number));
    return value;
  }

  // Finds the position of the directory and the number of its entries.
  void find_directory() {
    if (file_.size() < kEndBytes) refuse("the zip file ends early");
    const std::uint64_t first = file_.size() - std::min(file_.size(), kEndBytes + kLongestComment);
    std::uint64_t end = file_.size() - kEndBytes;
    while (file_.substr(end, 4) != kEnd || end + kEndBytes + number<std::uint16_t>(end + 20) > file_.size()) {
      if (end == first) refuse("the zip file has no directory at its end, so it is incomplete");
      --end;
    }
    count_ = number<std::uint16_t>(end + 10);
    begin_ = number<std::uint32_t>(end + 16);
    if (end < kLocator64Bytes || file_.substr(end - kLocator64Bytes, 4) != kLocator64) return;
    const auto end64 = number<std::uint64_t>(end - kLocator64Bytes + 8);
    if (part(end64, kEnd64Bytes).substr(0, 4) != kEnd64) refuse("its zip64 directory is damaged");
    count_ = number<std::uint64_t>(end64 + 32);
    begin_ = number<std::uint64_t>(end64 + 48);
  }

  // Reads the entry at `at`, and moves `at` to its end.
  std::pair<std::string, ZipEntry> entry_at(std::uint64_t& at) const {
    if (part(at, kCentralBytes).substr(0, 4) != kCentral) refuse("its zip directory is damaged");
    const std::uint64_t name_bytes = number<std::uint16_t>(at + 28), further = number<std::uint16_t>(at + 30);
    const std::string name(part(at + kCentralBytes, name_bytes));
    if (number<std::uint16_t>(at + 8) & kEncrypted) refuse("its entry '" + printable(name) + "' is encrypted");
    if (number<std::uint16_t>(at + 10) != 0) refuse("its entry '" + printable(name) + "' is compressed");
    std::uint64_t bytes = number<std::uint32_t>(at + 24), stored = number<std::uint32_t>(at + 20),
                  local = number<std::uint32_t>(at + 42);
    read_zip64(at + kCentralBytes + name_bytes, further, {&bytes, &stored, &local});
    if (bytes != stored) refuse("its entry '" + printable(name) + "' has two sizes");
    if (part(local, kLocalBytes).substr(0, 4) != kLocal) refuse("its entry '" + printable(name) + "' is damaged");
    ZipEntry entry{local + kLocalBytes + number<std::uint16_t>(local + 26) + number<std::uint16_t>(local + 28), bytes};
    part(entry.begin, entry.bytes);
    at += kCentralBytes + name_bytes + further + number<std::uint16_t>(at + 32);
    return {name, entry};
  }

  // Values that do not fit into 32 bits are in an additional field, in this order.
  void read_zip64(std::uint64_t at, std::uint64_t bytes, const std::vector<std::uint64_t*>& values) const {
    const std::uint64_t end = at + bytes;
    while (at + 4 <= end) {
      const auto field = number<std::uint16_t>(at), length = number<std::uint16_t>(at + 2);
      std::uint64_t value_at = at + 4;
      at += 4 + length;
      if (field != kZip64Field) continue;
      for (std::uint64_t* value : values) {
        if (*value != kIn64) continue;
        if (value_at + 8 > at) refuse("its zip64 sizes are damaged");
        *value = number<std::uint64_t>(value_at);
        value_at += 8;
      }
    }
  }

  std::string_view file_;
  const std::string& path_;
  std::uint64_t begin_ = 0, count_ = 0;
};

}  // namespace

bool is_zip(std::string_view file) { return file.starts_with(kLocal); }

std::map<std::string, ZipEntry> read_zip_directory(std::string_view file, const std::string& path) {
  return ZipReader(file, path).entries();
}

}  // namespace gantry
