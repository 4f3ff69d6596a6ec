#include "gantry/comm/control/frames.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr std::string_view kMagic = "GCP1";
constexpr std::size_t kNumber = 4, kFailureNumbers = 2 * kNumber, kHelloNumbers = sizeof(JobToken) + 4 * kNumber;
constexpr std::size_t kMostReport = 64;
constexpr double kMilliseconds = 1000;  // per second

// Valid lengths of the payload of a kind: from `least` to `most`, in multiples of `unit`.
struct Lengths {
  std::size_t least = 0, most = 0, unit = 1;
};
constexpr Lengths kEmpty, kOneNumber{kNumber, kNumber}, kRanks{kNumber, kMostPayload, kNumber};
// In the order of FrameKind, from hello on.
constexpr std::array kLengths = {
    Lengths{kHelloNumbers, kMostPayload},         // hello
    kEmpty,                                       // begin
    kEmpty,                                       // beat
    Lengths{kFailureNumbers, kMostPayload},       // failure
    kEmpty,                                       // done
    kEmpty,                                       // end
    kEmpty,                                       // ask
    kRanks,                                       // late
    kRanks,                                       // left
    kEmpty,                                       // stop
    Lengths{1, kMostCommand},                     // command
    kOneNumber,                                   // begun
    Lengths{1, kMostOutput},                      // output
    Lengths{1, kMostOutput},                      // errors
    kOneNumber,                                   // signal
    kEmpty,                                       // kill
    kOneNumber,                                   // stopped
    kEmpty,                                       // notified
    Lengths{1, kMostReport},                      // report
    Lengths{2 * kNumber, kMostPayload},           // share
    Lengths{4 * kNumber, kMostPayload, kNumber},  // elastic
    Lengths{2 * kNumber, kMostPayload, kNumber},  // regroup
    kEmpty,                                       // waiting
    kEmpty,                                       // grow
    Lengths{2 * kNumber, 2 * kNumber},            // lost
    kEmpty,                                       // pause
    kEmpty,                                       // resume
    kEmpty,                                       // record
};
static_assert(kLengths.size() == static_cast<std::size_t>(FrameKind::record));

bool length_fits(FrameKind kind, std::size_t bytes) {
  const Lengths& lengths = kLengths[static_cast<std::size_t>(kind) - 1];
  return bytes >= lengths.least && bytes <= lengths.most && bytes % lengths.unit == 0;
}

void put_number(std::string& bytes, std::uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(number >> shift & 0xFF));
}

std::uint32_t get_number(std::string_view bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < kNumber; ++i)
    number |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return number;
}

std::string numbers_text(const std::vector<int>& numbers) {
  std::string bytes;
  for (const int number : numbers) put_number(bytes, static_cast<std::uint32_t>(number));
  return bytes;
}

// Returns the numbers of a payload whose length was checked. Throws FrameError if a number is too large.
std::vector<int> numbers_of(std::string_view payload) {
  std::vector<int> numbers;
  for (std::size_t at = 0; at < payload.size(); at += kNumber) {
    const std::uint32_t number = get_number(payload, at);
    if (number > INT32_MAX) throw FrameError("a number that is too large");
    numbers.push_back(static_cast<int>(number));
  }
  return numbers;
}

// Returns the text as one line without control characters, so that a terminal interprets none of it.
std::string line_of(std::string_view bytes) {
  std::string line(bytes);
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < 32 || c == 127; }, ' ');
  return line;
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
  for (const int number : {static_cast<int>(hello.peer), hello.rank, hello.ranks, hello.process})
    put_number(payload, static_cast<std::uint32_t>(number));
  payload.append(hello.host, 0, kMostPayload - kHelloNumbers);
  return encode_frame(FrameKind::hello, payload);
}

std::string encode_failure(const JobFailure& failure) {
  std::string payload;
  put_number(payload, static_cast<std::uint32_t>(failure.rank));
  put_number(payload, static_cast<std::uint32_t>(failure.exit_code));
  payload.append(failure.cause, 0, kMostPayload - kFailureNumbers);
  return encode_frame(FrameKind::failure, payload);
}

std::string encode_number(FrameKind kind, int number) {
  std::string payload;
  put_number(payload, static_cast<std::uint32_t>(number));
  return encode_frame(kind, payload);
}

std::string encode_ranks(FrameKind kind, const std::set<int>& ranks) {
  std::string payload;
  for (const int rank : ranks)
    if (payload.size() + kNumber <= kMostPayload) put_number(payload, static_cast<std::uint32_t>(rank));
  return encode_frame(kind, payload);
}

std::string encode_share(const Share& share) {
  std::string payload = numbers_text({share.rank, share.generation});
  payload.append(share.bytes, 0, kMostPayload - 2 * kNumber);
  return encode_frame(FrameKind::share, payload);
}

std::string encode_policy(const ElasticPolicy& policy) {
  std::vector<int> numbers = {policy.min_replicas, policy.rejoin ? 1 : 0,
                              static_cast<int>(policy.heartbeat_seconds * kMilliseconds)};
  numbers.insert(numbers.end(), policy.replicas.begin(), policy.replicas.end());
  return encode_frame(FrameKind::elastic, numbers_text(numbers));
}

std::string encode_members(const JobMembers& members) {
  std::vector<int> numbers = {members.generation};
  numbers.insert(numbers.end(), members.ranks.begin(), members.ranks.end());
  return encode_frame(FrameKind::regroup, numbers_text(numbers));
}

std::string encode_lost(int generation, int rank) {
  return encode_frame(FrameKind::lost, numbers_text({generation, rank}));
}

std::string encode_command(const std::vector<std::string>& words) {
  std::string payload;
  for (const auto& word : words) payload += word + '\0';
  if (payload.size() > kMostCommand)
    throw UsageError({"gantry launch", fmt::format("the program and its arguments have {} bytes", payload.size()),
                      fmt::format("at most {} bytes", kMostCommand), "pass the arguments in a file"});
  return encode_frame(FrameKind::command, payload);
}

FrameHead decode_head(std::span<const char, kFrameHeadBytes> head) {
  const std::string_view bytes(head.data(), head.size());
  if (!bytes.starts_with(kMagic)) throw FrameError("it does not begin with the magic bytes of a control-plane frame");
  const auto kind = static_cast<unsigned char>(bytes[4]);
  if (kind == 0 || kind > kLengths.size()) throw FrameError("frame kind " + std::to_string(kind) + " is unknown");
  if (bytes.substr(5, 3) != std::string_view("\0\0\0", 3)) throw FrameError("the reserved bytes are not zero");
  const FrameHead decoded{static_cast<FrameKind>(kind), get_number(bytes, 8)};
  if (!length_fits(decoded.kind, decoded.payload_bytes))
    throw FrameError("a payload of " + std::to_string(decoded.payload_bytes) + " bytes does not fit frame kind " +
                     std::to_string(kind));
  return decoded;
}

Hello decode_hello(std::string_view payload) {
  if (payload.size() < kHelloNumbers) throw FrameError("a hello frame of " + std::to_string(payload.size()) + " bytes");
  Hello hello;
  std::memcpy(hello.token.data(), payload.data(), hello.token.size());
  std::array<std::uint32_t, 4> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = get_number(payload, sizeof(JobToken) + i * kNumber);
  const auto [peer, rank, ranks, process] = numbers;
  if (peer != static_cast<std::uint32_t>(Peer::rank) && peer != static_cast<std::uint32_t>(Peer::shim))
    throw FrameError("a hello frame from neither a rank nor a shim");
  if (ranks > INT32_MAX || rank >= ranks) throw FrameError("a hello frame with a rank outside its job");
  if (process > INT32_MAX) throw FrameError("a hello frame with an invalid process id");
  hello.peer = static_cast<Peer>(peer);
  hello.rank = static_cast<int>(rank);
  hello.ranks = static_cast<int>(ranks);
  hello.process = static_cast<int>(process);
  hello.host = line_of(payload.substr(kHelloNumbers));
  return hello;
}

JobFailure decode_failure(std::string_view payload, int ranks) {
  if (payload.size() < kFailureNumbers)
    throw FrameError("a failure frame of " + std::to_string(payload.size()) + " bytes");
  const std::uint32_t rank = get_number(payload, 0), code = get_number(payload, kNumber);
  if (rank >= static_cast<std::uint32_t>(ranks) || code > 255)
    throw FrameError("a failure frame with an invalid rank or exit code");
  return {static_cast<int>(rank), static_cast<int>(code), line_of(payload.substr(kFailureNumbers))};
}

int decode_number(std::string_view payload) {
  if (payload.size() != kNumber) throw FrameError("a number of " + std::to_string(payload.size()) + " bytes");
  const std::uint32_t number = get_number(payload, 0);
  if (number > INT32_MAX) throw FrameError("a number that is too large");
  return static_cast<int>(number);
}

std::set<int> decode_ranks(std::string_view payload, int ranks) {
  if (!length_fits(FrameKind::late, payload.size()))
    throw FrameError("a list of ranks of " + std::to_string(payload.size()) + " bytes");
  std::set<int> decoded;
  for (std::size_t at = 0; at < payload.size(); at += kNumber) {
    const std::uint32_t rank = get_number(payload, at);
    if (rank >= static_cast<std::uint32_t>(ranks)) throw FrameError("a rank outside its job");
    decoded.insert(static_cast<int>(rank));
  }
  return decoded;
}

Share decode_share(std::string_view payload, int ranks) {
  if (!length_fits(FrameKind::share, payload.size()))
    throw FrameError("a share frame of " + std::to_string(payload.size()) + " bytes");
  const auto numbers = numbers_of(payload.substr(0, 2 * kNumber));
  if (numbers[0] >= ranks) throw FrameError("a share of a rank outside its job");
  return {numbers[0], numbers[1], std::string(payload.substr(2 * kNumber))};
}

ElasticPolicy decode_policy(std::string_view payload, int ranks) {
  if (payload.size() != kNumber * (3 + static_cast<std::size_t>(ranks)))
    throw FrameError("an elastic frame of " + std::to_string(payload.size()) + " bytes");
  const auto numbers = numbers_of(payload);
  if (numbers[0] < 1 || numbers[2] < 1) throw FrameError("an elastic frame without replicas or heartbeats");
  return {numbers[0], numbers[1] != 0, numbers[2] / kMilliseconds, {numbers.begin() + 3, numbers.end()}};
}

JobMembers decode_members(std::string_view payload, int ranks) {
  if (!length_fits(FrameKind::regroup, payload.size()))
    throw FrameError("a regroup frame of " + std::to_string(payload.size()) + " bytes");
  const auto numbers = numbers_of(payload);
  const JobMembers members{numbers[0], {numbers.begin() + 1, numbers.end()}};
  for (std::size_t i = 0; i < members.ranks.size(); ++i)
    if (members.ranks[i] >= ranks || (i > 0 && members.ranks[i] <= members.ranks[i - 1]))
      throw FrameError("a regroup frame with ranks outside its job, or not ascending");
  return members;
}

std::pair<int, int> decode_lost(std::string_view payload, int ranks) {
  if (!length_fits(FrameKind::lost, payload.size()))
    throw FrameError("a lost frame of " + std::to_string(payload.size()) + " bytes");
  const auto numbers = numbers_of(payload);
  if (numbers[1] >= ranks) throw FrameError("a lost frame with a rank outside its job");
  return {numbers[0], numbers[1]};
}

std::vector<std::string> decode_command(std::string_view payload) {
  std::vector<std::string> words;
  for (std::size_t begin = 0, end; (end = payload.find('\0', begin)) != std::string_view::npos; begin = end + 1)
    words.emplace_back(payload.substr(begin, end - begin));
  if (words.empty()) throw FrameError("an empty command");
  return words;
}

}  // namespace gantry
