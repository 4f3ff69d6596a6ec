#include "gantry/cli/launch/frames.h"

#include <arpa/inet.h>
#include <cstring>
#include <fmt/format.h>
#include <sstream>

#include "gantry/core/error.h"

namespace gantry::cli {
namespace {
constexpr std::size_t kHeader = 5;
}

std::string encode(const Frame& frame) {
  const std::uint32_t length = htonl(static_cast<std::uint32_t>(frame.bytes.size()));
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += static_cast<char>(frame.kind);
  return bytes + frame.bytes;
}

std::optional<Frame> FrameReader::next() {
  if (bytes_.size() < kHeader) return std::nullopt;
  std::uint32_t length = 0;
  std::memcpy(&length, bytes_.data(), sizeof(length));
  length = ntohl(length);
  if (length > kLargest)
    throw PeerError({"launch", fmt::format("a frame of {} bytes", length), fmt::format("at most {}", kLargest), ""});
  if (bytes_.size() < kHeader + length) return std::nullopt;
  Frame frame{static_cast<FrameKind>(bytes_[4]), bytes_.substr(kHeader, length)};
  bytes_.erase(0, kHeader + length);
  return frame;
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

}  // namespace gantry::cli
