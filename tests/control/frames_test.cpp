// Encoding and decoding of frames, and the rejection of invalid ones.
#include "gantry/comm/control/frames.h"

#include <array>
#include <gtest/gtest.h>
#include <random>

#include "gantry/core/error.h"

namespace gantry {
namespace {

FrameHead head_of(const std::string& frame) {
  return decode_head(std::span<const char, kFrameHeadBytes>(frame.data(), kFrameHeadBytes));
}

std::string payload_of(const std::string& frame) { return frame.substr(kFrameHeadBytes); }

// Returns a frame head that announces a payload of `length` bytes.
std::string head_bytes(FrameKind kind, std::uint32_t length) {
  std::string frame = encode_frame(kind);
  for (int i = 0; i < 4; ++i) frame[8 + i] = static_cast<char>(length >> (8 * i));
  return frame;
}

TEST(Frames, ComeBackAsTheyWent) {
  const Hello hello{
      .token = random_job_token(), .peer = Peer::shim, .rank = 3, .ranks = 8, .process = 17, .host = "a.example"};
  const std::string frame = encode_hello(hello);
  EXPECT_EQ(head_of(frame).kind, FrameKind::hello);
  EXPECT_EQ(head_of(frame).payload_bytes, payload_of(frame).size());
  const Hello back = decode_hello(payload_of(frame));
  EXPECT_EQ(back.token, hello.token);
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.ranks, 8);
  EXPECT_EQ(back.peer, Peer::shim);
  EXPECT_EQ(back.process, 17);
  EXPECT_EQ(back.host, "a.example");

  const std::string notified = encode_failure({2, 7, "rank 2: the cause"});
  EXPECT_EQ(head_of(notified).kind, FrameKind::failure);
  const JobFailure failure = decode_failure(payload_of(notified), 3);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_EQ(failure.exit_code, 7);
  EXPECT_EQ(failure.cause, "rank 2: the cause");

  const std::string late = encode_ranks(FrameKind::late, {0, 2, 300});
  EXPECT_EQ(head_of(late).kind, FrameKind::late);
  EXPECT_EQ(decode_ranks(payload_of(late), 301), (std::set<int>{0, 2, 300}));

  const std::string share = encode_share({3, 5, std::string("a\0b", 3)});
  EXPECT_EQ(head_of(share).kind, FrameKind::share);
  const Share decoded = decode_share(payload_of(share), 4);
  EXPECT_EQ(decoded.rank, 3);
  EXPECT_EQ(decoded.generation, 5);
  EXPECT_EQ(decoded.bytes, std::string("a\0b", 3));
  EXPECT_THROW(decode_share(payload_of(share), 3), FrameError);

  const std::string policy =
      encode_policy({.min_replicas = 2, .rejoin = false, .heartbeat_seconds = 0.25, .replicas = {0, 0, 1}});
  EXPECT_EQ(head_of(policy).kind, FrameKind::elastic);
  EXPECT_EQ(decode_policy(payload_of(policy), 3).min_replicas, 2);
  EXPECT_FALSE(decode_policy(payload_of(policy), 3).rejoin);
  EXPECT_EQ(decode_policy(payload_of(policy), 3).heartbeat_seconds, 0.25);
  EXPECT_EQ(decode_policy(payload_of(policy), 3).replicas, (std::vector<int>{0, 0, 1}));
  EXPECT_THROW(decode_policy(payload_of(policy), 4), FrameError);

  const std::string members = encode_members({4, {1, 3}});
  EXPECT_EQ(head_of(members).kind, FrameKind::regroup);
  EXPECT_EQ(decode_members(payload_of(members), 4).generation, 4);
  EXPECT_EQ(decode_members(payload_of(members), 4).ranks, (std::vector<int>{1, 3}));
  EXPECT_THROW(decode_members(payload_of(members), 3), FrameError);
  EXPECT_THROW(decode_members(payload_of(encode_members({4, {3, 1}})), 4), FrameError);
  EXPECT_EQ(decode_lost(payload_of(encode_lost(2, 1)), 2), std::pair(2, 1));

  const std::string number = encode_number(FrameKind::signal, 10);
  EXPECT_EQ(head_of(number).kind, FrameKind::signal);
  EXPECT_EQ(decode_number(payload_of(number)), 10);
  const std::vector<std::string> words = {"a", "", "b c"};
  EXPECT_EQ(decode_command(payload_of(encode_command(words))), words);
}

TEST(Frames, ACommandThatIsTooLongIsRefusedBeforeItIsSent) {
  EXPECT_THROW(encode_command({std::string(kMostCommand, 'x')}), UsageError);
  EXPECT_THROW(decode_command("no zero byte"), FrameError);
}

TEST(Frames, AreTheBytesThatTheHeaderSays) {
  EXPECT_EQ(encode_frame(FrameKind::beat), std::string("GCP1\x03\0\0\0\0\0\0\0", 12));
}

TEST(Frames, ACauseThatIsTooLongIsTruncated) {
  const std::string frame = encode_failure({0, 1, std::string(100'000, 'x')});
  EXPECT_EQ(frame.size(), kFrameHeadBytes + kMostPayload);
  EXPECT_NO_THROW(head_of(frame));
}

TEST(Frames, ACauseIsOneLineThatNoTerminalObeys) {
  const JobFailure failure = decode_failure(payload_of(encode_failure({0, 1, "a\nb\x1b[31mc"})), 1);
  EXPECT_EQ(failure.cause, "a b [31mc");
}

TEST(Frames, LengthsThatAKindCantHaveAreRefused) {
  using enum FrameKind;
  struct Wrong {
    std::vector<FrameKind> kinds;
    std::vector<std::uint32_t> lengths;
  };
  const Wrong all[] = {
      {{begin, beat, done, end, ask, stop, kill, notified, waiting, grow}, {1, 4}},
      {{hello}, {0, 31, 4097}},
      {{failure}, {0, 7, 4097}},
      {{late, left}, {0, 7, 4100}},
      {{begun, signal, stopped}, {0, 3, 8}},
      {{output, errors}, {0, (64 << 10) + 1}},
      {{command}, {0, (1 << 20) + 1}},
      {{report}, {0, 65}},
      {{share}, {0, 7, 4097}},
      {{elastic}, {0, 12, 17, 4100}},
      {{regroup}, {0, 4, 9, 4100}},
      {{lost}, {0, 4, 12}},
  };
  std::set<FrameKind> seen;
  for (const auto& [kinds, lengths] : all)
    for (const FrameKind kind : kinds) {
      seen.insert(kind);
      for (const std::uint32_t length : lengths) EXPECT_THROW(head_of(head_bytes(kind, length)), FrameError) << length;
      for (const std::uint32_t length : {0x7FFFFFFFu, 0xFFFFFFFFu})
        EXPECT_THROW(head_of(head_bytes(kind, length)), FrameError) << static_cast<int>(kind);
    }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(lost));
  EXPECT_EQ(head_of(head_bytes(output, 64 << 10)).payload_bytes, 64u << 10);
}

TEST(Frames, AFailureOfNoRankOrExitCodeIsRefused) {
  EXPECT_THROW(decode_failure(payload_of(encode_failure({3, 7, ""})), 3), FrameError);
  EXPECT_THROW(decode_failure(payload_of(encode_failure({-1, 7, ""})), 3), FrameError);
  EXPECT_THROW(decode_failure(payload_of(encode_failure({0, 256, ""})), 3), FrameError);
  EXPECT_THROW(decode_failure("short", 3), FrameError);
}

TEST(Frames, AHelloOfARankOutsideItsJobIsRefused) {
  for (const auto& [rank, ranks] : {std::pair{4, 4}, {-1, 4}, {0, 0}, {0, -1}})
    EXPECT_THROW(decode_hello(payload_of(encode_hello({.rank = rank, .ranks = ranks}))), FrameError)
        << rank << " " << ranks;
  EXPECT_THROW(decode_hello(payload_of(encode_hello({.peer = static_cast<Peer>(3), .ranks = 1}))), FrameError);
  EXPECT_THROW(decode_hello(payload_of(encode_hello({.ranks = 1, .process = -1}))), FrameError);
}

TEST(Frames, AHelloIsTruncatedAndHasAHostOfOneLine) {
  const std::string frame = encode_hello({.ranks = 1, .host = "a\n" + std::string(100'000, 'x')});
  EXPECT_EQ(head_of(frame).payload_bytes, kMostPayload);
  EXPECT_TRUE(decode_hello(payload_of(frame)).host.starts_with("a x"));
}

TEST(Frames, LateRanksAreOfTheJobAndAtMostWhatFits) {
  EXPECT_THROW(decode_ranks(payload_of(encode_ranks(FrameKind::late, {3})), 3), FrameError);
  EXPECT_THROW(decode_ranks("short", 3), FrameError);
  EXPECT_THROW(decode_ranks("", 3), FrameError);
  std::set<int> many;
  for (int rank = 0; rank < 5000; ++rank) many.insert(rank);
  const std::string frame = encode_ranks(FrameKind::late, many);
  EXPECT_EQ(head_of(frame).payload_bytes, kMostPayload);
  EXPECT_EQ(decode_ranks(payload_of(frame), 5000).size(), kMostPayload / 4);
}

// Any bytes give either a valid head or a FrameError. The announced payload never exceeds the limit.
TEST(Frames, RandomBytesAreRefusedOrHarmless) {
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string bytes = encode_frame(static_cast<FrameKind>(1 + random() % static_cast<unsigned>(FrameKind::record)));
    const int changes = static_cast<int>(random() % 5);
    for (int i = 0; i < changes; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    try {
      const FrameHead head = head_of(bytes);
      ++accepted;
      EXPECT_LE(head.payload_bytes, kMostCommand);
      if (head.kind == FrameKind::hello) EXPECT_LE(head.payload_bytes, kMostPayload);
      std::string payload(head.payload_bytes, '\0');
      for (char& byte : payload) byte = static_cast<char>(random());
      if (head.kind == FrameKind::hello) decode_hello(payload);
      if (head.kind == FrameKind::failure) decode_failure(payload, 4);
      if (head.kind == FrameKind::late || head.kind == FrameKind::left) decode_ranks(payload, 4);
      if (head.kind == FrameKind::command) decode_command(payload);
      if (head.payload_bytes == 4) decode_number(payload);
    } catch (const FrameError&) {
    }
  }
  EXPECT_GT(accepted, 1000);
}

TEST(JobToken, IsNewEachTimeAndComparedWhole) {
  const JobToken token = random_job_token();
  EXPECT_NE(token, random_job_token());
  EXPECT_TRUE(same_job_token(token, token));
  for (std::size_t i = 0; i < token.size(); ++i) {
    JobToken other = token;
    other[i] ^= 1;
    EXPECT_FALSE(same_job_token(token, other)) << i;
  }
}

TEST(Rendezvous, TravelsAsText) {
  const Rendezvous meeting{"10.0.0.1", 4242, random_job_token()};
  const auto back = decode_meeting(encode_meeting(meeting));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->address, meeting.address);
  EXPECT_EQ(back->port, meeting.port);
  EXPECT_EQ(back->token, meeting.token);
  for (const char* text : {"", "0123 4242 10.0.0.1", "0123456789abcdef0123456789abcdeg 4242 10.0.0.1",
                           "0123456789abcdef0123456789abcdef port 10.0.0.1", "0123456789abcdef0123456789abcdef 4242"})
    EXPECT_FALSE(decode_meeting(text)) << text;
}

}  // namespace
}  // namespace gantry
