// Detection of silent peers, with times that the test sets.
#include <gtest/gtest.h>

#include "gantry/comm/control/heartbeats.h"

namespace gantry {
namespace {

// look_until() calls look() at the times that the watch requests, from `now` until `end`. `at` is the time at
// which it found a silent peer.
struct Found {
  double at = 0;
  SilenceWatch::Silent silent;
};
std::optional<Found> look_until(SilenceWatch& watch, double& now, double end) {
  while (watch.next_look() <= end) {
    now = watch.next_look();
    if (const auto silent = watch.look(now)) return Found{now, *silent};
  }
  now = end;
  return std::nullopt;
}

TEST(SilenceWatch, FindsASilentPeerAtTheLimitAndNotBefore) {
  SilenceWatch watch(1, 15, 100);
  double now = 100;
  watch.heard(2, 100.25);
  EXPECT_FALSE(look_until(watch, now, 115.2));
  const auto found = look_until(watch, now, 130);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->silent.peer, 2);
  EXPECT_NEAR(found->silent.seconds, 15, 1e-6);
  EXPECT_NEAR(found->at, 115.25, 1e-6);
}

TEST(SilenceWatch, NamesTheOneThatIsSilentTheLongest) {
  SilenceWatch watch(1, 2, 0);
  watch.heard(5, 0.1);
  watch.heard(3, 0);
  watch.heard(4, 0.2);
  double now = 0;
  const auto found = look_until(watch, now, 10);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->silent.peer, 3);
}

TEST(SilenceWatch, WhoSpeaksOrIsForgottenIsNotLost) {
  SilenceWatch watch(1, 3, 0);
  watch.heard(1, 0);
  watch.heard(2, 0);
  double now = 0;
  watch.forget(2);
  for (int second = 1; second < 60; ++second) {
    EXPECT_FALSE(look_until(watch, now, second)) << second;
    watch.heard(1, second);
  }
}

TEST(SilenceWatch, ARankThatWasItselfStoppedDeclaresNobodyLostOnWaking) {
  for (const double lost_after : {2.0, 3.0, 15.0}) {
    SilenceWatch watch(1, lost_after, 0);
    watch.heard(1, 0);
    double now = 0;
    for (int second = 1; second <= 5; ++second) {
      EXPECT_FALSE(look_until(watch, now, second));
      watch.heard(1, second);
    }
    // This rank is stopped from 5 to 65. Its timers run before it has read the heartbeats of its peers.
    EXPECT_FALSE(watch.look(65)) << lost_after;
    watch.heard(1, 65.01);
    now = 65.01;
    for (int second = 66; second <= 80; ++second) {
      EXPECT_FALSE(look_until(watch, now, second)) << lost_after << " " << second;
      watch.heard(1, second);
    }
  }
}

TEST(SilenceWatch, APeerThatStoppedWhileThisOneDidIsFoundLater) {
  SilenceWatch watch(1, 15, 0);
  watch.heard(1, 0);
  double now = 0;
  EXPECT_FALSE(look_until(watch, now, 3));
  EXPECT_FALSE(watch.look(60));  // this one was stopped; the peer stays silent
  const auto found = look_until(watch, now, 100);
  ASSERT_TRUE(found);
  EXPECT_GT(found->at, 70);
  EXPECT_LT(found->at, 75);
}

TEST(SilenceWatch, TimersThatAreALittleLateDoNotDelayIt) {
  SilenceWatch watch(1, 15, 0);
  watch.heard(1, 0);
  double found_at = 0;
  for (double now = 0; now < 30 && found_at == 0;) {
    now = watch.next_look() + 0.3;
    if (watch.look(now)) found_at = now;
  }
  EXPECT_GT(found_at, 0);
  EXPECT_LT(found_at, 16.4);
}

}  // namespace
}  // namespace gantry
