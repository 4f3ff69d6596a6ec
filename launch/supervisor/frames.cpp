#include "gantry/launch/supervisor/frames.h"

#include <arpa/inet.h>
#include <cstring>
#include <fmt/format.h>
#include <sstream>

#include "gantry/core/error.h"

namespace gantry::launcher {
namespace {
constexpr std::size_t kHeader = 5;
}

std::string encode(const Frame& frame) {
  const std::uint32_t length = htonl(static_cast<std::uint32_t>(frame.bytes.size()));
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += static_cast<char>(frame.kind);
  return bytes + frame.bytes;
}

void FrameReader::add(std::string_view bytes) {
  bytes_.erase(0, begin_);
  begin_ = 0;
  bytes_.append(bytes);
}

std::optional<Frame> FrameReader::next() {
  const std::string_view left = std::string_view(bytes_).substr(begin_);
  if (left.size() < kHeader) return std::nullopt;
  std::uint32_t length = 0;
  std::memcpy(&length, left.data(), sizeof(length));
  length = ntohl(length);
  if (length > largest_)
    throw PeerError({"launch", fmt::format("a frame of {} bytes", length), fmt::format("at most {}", largest_), ""});
  if (left.size() < kHeader + length) return std::nullopt;
  begin_ += kHeader + length;
  return Frame{static_cast<FrameKind>(left[4]), std::string(left.substr(kHeader, length))};
}

std::string encode_hello(const Hello& hello) {
  return fmt::format("{} {} {} {}", hello.token, hello.rank, hello.process, hello.host);
}

std::optional<Hello> decode_hello(const std::string& bytes) {
  std::istringstream words(bytes);
  Hello hello;
  if (!(words >> hello.token >> hello.rank >> hello.process >> hello.host)) return std::nullopt;
  return hello;
}

std::string encode_words(const std::vector<std::string>& words) {
  std::string bytes;
  for (const auto& word : words) bytes += word + '\0';
  return bytes;
}

std::vector<std::string> decode_words(const std::string& bytes) {
  std::vector<std::string> words;
  for (std::size_t begin = 0, end; (end = bytes.find('\0', begin)) != std::string::npos; begin = end + 1)
    words.push_back(bytes.substr(begin, end - begin));
  return words;
}

}  // namespace gantry::launcher
