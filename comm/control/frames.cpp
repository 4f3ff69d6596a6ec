#include "gantry/comm/control/frames.h"

#include <algorithm>
#include <cstring>

namespace gantry {
namespace {

constexpr std::string_view kMagic = "GCP1";
constexpr std::size_t kHelloBytes = sizeof(JobToken) + 8;
constexpr std::size_t kFailureNumbers = 8;

void put_number(std::string& bytes, std::uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(number >> shift & 0xFF));
}

std::uint32_t get_number(std::string_view bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i)
    number |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return number;
}

bool length_fits(FrameKind kind, std::size_t bytes) {
  switch (kind) {
    case FrameKind::hello:
      return bytes == kHelloBytes;
    case FrameKind::failure:
      return bytes >= kFailureNumbers && bytes <= kMostPayload;
    case FrameKind::late:
    case FrameKind::left:
      return bytes > 0 && bytes % 4 == 0 && bytes <= kMostPayload;
    default:
      return bytes == 0;
  }
}

}  // namespace

std::string encode_frame(FrameKind kind, std::string_view payload) {
  std::string bytes(kMagic);
  bytes.push_back(static_cast<char>(kind));
  bytes.append(3, '\0');
  put_number(bytes, static_cast<std::uint32_t>(payload.size()));
  return bytes.append(payload);
}

std::string encode_hello(const Hello& hello) {
  std::string payload(reinterpret_cast<const char*>(hello.token.data()), hello.token.size());
  put_number(payload, static_cast<std::uint32_t>(hello.rank));
  put_number(payload, static_cast<std::uint32_t>(hello.ranks));
  return encode_frame(FrameKind::hello, payload);
}

std::string encode_failure(const JobFailure& failure) {
  std::string payload;
  put_number(payload, static_cast<std::uint32_t>(failure.rank));
  put_number(payload, static_cast<std::uint32_t>(failure.exit_code));
  payload.append(failure.cause, 0, kMostPayload - kFailureNumbers);
  return encode_frame(FrameKind::failure, payload);
}

std::string encode_ranks(FrameKind kind, const std::set<int>& ranks) {
  std::string payload;
  for (const int rank : ranks)
    if (payload.size() + 4 <= kMostPayload) put_number(payload, static_cast<std::uint32_t>(rank));
  return encode_frame(kind, payload);
}

FrameHead decode_head(std::span<const char, kFrameHeadBytes> head) {
  const std::string_view bytes(head.data(), head.size());
  if (!bytes.starts_with(kMagic)) throw FrameError("it begins with other bytes than a frame of a control plane");
  const auto kind = static_cast<unsigned char>(bytes[4]);
  if (kind < static_cast<unsigned char>(FrameKind::hello) || kind > static_cast<unsigned char>(FrameKind::stop))
    throw FrameError("kind " + std::to_string(kind) + " is unknown");
  if (bytes.substr(5, 3) != std::string_view("\0\0\0", 3)) throw FrameError("bytes that must be zero are not");
  const FrameHead decoded{static_cast<FrameKind>(kind), get_number(bytes, 8)};
  if (!length_fits(decoded.kind, decoded.payload_bytes))
    throw FrameError("a payload of " + std::to_string(decoded.payload_bytes) + " bytes does not go with kind " +
                     std::to_string(kind));
  return decoded;
}

Hello decode_hello(std::string_view payload) {
  if (payload.size() != kHelloBytes) throw FrameError("a hello of " + std::to_string(payload.size()) + " bytes");
  Hello hello;
  std::memcpy(hello.token.data(), payload.data(), hello.token.size());
  const std::uint32_t rank = get_number(payload, sizeof(JobToken)), ranks = get_number(payload, sizeof(JobToken) + 4);
  if (ranks > INT32_MAX || rank >= ranks) throw FrameError("a hello of a rank outside its job");
  hello.rank = static_cast<int>(rank);
  hello.ranks = static_cast<int>(ranks);
  return hello;
}

JobFailure decode_failure(std::string_view payload, int ranks) {
  if (payload.size() < kFailureNumbers) throw FrameError("a failure of " + std::to_string(payload.size()) + " bytes");
  const std::uint32_t rank = get_number(payload, 0), code = get_number(payload, 4);
  if (rank >= static_cast<std::uint32_t>(ranks) || code > 255) throw FrameError("a failure of no rank or exit code");
  std::string cause(payload.substr(kFailureNumbers));
  // It goes to a terminal as one line.
  std::replace_if(
      cause.begin(), cause.end(), [](unsigned char c) { return c < 32 || c == 127; }, ' ');
  return {static_cast<int>(rank), static_cast<int>(code), std::move(cause)};
}

std::set<int> decode_ranks(std::string_view payload, int ranks) {
  if (!length_fits(FrameKind::late, payload.size()))
    throw FrameError("ranks in " + std::to_string(payload.size()) + " bytes");
  std::set<int> decoded;
  for (std::size_t at = 0; at < payload.size(); at += 4) {
    const std::uint32_t rank = get_number(payload, at);
    if (rank >= static_cast<std::uint32_t>(ranks)) throw FrameError("a rank outside its job");
    decoded.insert(static_cast<int>(rank));
  }
  return decoded;
}

}  // namespace gantry
