// What is a frame and what is not.
#include "gantry/comm/control/frames.h"

#include <array>
#include <gtest/gtest.h>
#include <random>

namespace gantry {
namespace {

FrameHead head_of(const std::string& frame) {
  return decode_head(std::span<const char, kFrameHeadBytes>(frame.data(), kFrameHeadBytes));
}

std::string payload_of(const std::string& frame) { return frame.substr(kFrameHeadBytes); }

TEST(Frames, ComeBackAsTheyWent) {
  Hello hello{random_job_token(), 3, 8};
  const std::string frame = encode_hello(hello);
  EXPECT_EQ(head_of(frame).kind, FrameKind::hello);
  EXPECT_EQ(head_of(frame).payload_bytes, payload_of(frame).size());
  const Hello back = decode_hello(payload_of(frame));
  EXPECT_EQ(back.token, hello.token);
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.ranks, 8);

  const std::string told = encode_failure({2, 7, "rank 2: the cause"});
  EXPECT_EQ(head_of(told).kind, FrameKind::failure);
  const JobFailure failure = decode_failure(payload_of(told), 3);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_EQ(failure.exit_code, 7);
  EXPECT_EQ(failure.cause, "rank 2: the cause");

  const std::string late = encode_ranks(FrameKind::late, {0, 2, 300});
  EXPECT_EQ(head_of(late).kind, FrameKind::late);
  EXPECT_EQ(decode_ranks(payload_of(late), 301), (std::set<int>{0, 2, 300}));
}

TEST(Frames, AreTheBytesThatTheHeaderSays) {
  EXPECT_EQ(encode_frame(FrameKind::beat), std::string("GCP1\x03\0\0\0\0\0\0\0", 12));
}

TEST(Frames, ACauseThatIsTooLongIsCut) {
  const std::string frame = encode_failure({0, 1, std::string(100'000, 'x')});
  EXPECT_EQ(frame.size(), kFrameHeadBytes + kMostPayload);
  EXPECT_NO_THROW(head_of(frame));
}

TEST(Frames, ACauseIsOneLineThatNoTerminalObeys) {
  const JobFailure failure = decode_failure(payload_of(encode_failure({0, 1, "a\nb\x1b[31mc"})), 1);
  EXPECT_EQ(failure.cause, "a b [31mc");
}

TEST(Frames, LengthsThatAKindCantHaveAreRefused) {
  for (const char kind : {1, 2, 3, 4, 5, 6, 7, 8})
    for (const std::uint32_t length : {1u, 7u, 25u, 4097u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
      if (kind == 4 && length == 25) continue;  // a failure may be
      std::string frame = encode_frame(FrameKind::beat);
      frame[4] = kind;
      for (int i = 0; i < 4; ++i) frame[8 + i] = static_cast<char>(length >> (8 * i));
      EXPECT_THROW(head_of(frame), FrameError) << int{kind} << " " << length;
    }
}

TEST(Frames, AFailureOfNoRankOrExitCodeIsRefused) {
  EXPECT_THROW(decode_failure(payload_of(encode_failure({3, 7, ""})), 3), FrameError);
  EXPECT_THROW(decode_failure(payload_of(encode_failure({-1, 7, ""})), 3), FrameError);
  EXPECT_THROW(decode_failure(payload_of(encode_failure({0, 256, ""})), 3), FrameError);
  EXPECT_THROW(decode_failure("short", 3), FrameError);
}

TEST(Frames, AHelloOfARankOutsideItsJobIsRefused) {
  for (const auto& [rank, ranks] : {std::pair{4, 4}, {-1, 4}, {0, 0}, {0, -1}})
    EXPECT_THROW(decode_hello(payload_of(encode_hello({{}, rank, ranks}))), FrameError) << rank << " " << ranks;
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

// Whatever comes: a head that fits, or FrameError; never more bytes than the cap.
TEST(Frames, RandomBytesAreRefusedOrHarmless) {
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string bytes = encode_frame(static_cast<FrameKind>(1 + random() % 8));
    const int changes = static_cast<int>(random() % 5);
    for (int i = 0; i < changes; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    try {
      const FrameHead head = head_of(bytes);
      ++accepted;
      EXPECT_LE(head.payload_bytes, kMostPayload);
      std::string payload(head.payload_bytes, '\0');
      for (char& byte : payload) byte = static_cast<char>(random());
      if (head.kind == FrameKind::hello) decode_hello(payload);
      if (head.kind == FrameKind::failure) decode_failure(payload, 4);
      if (head.kind == FrameKind::late || head.kind == FrameKind::left) decode_ranks(payload, 4);
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

}  // namespace
}  // namespace gantry
