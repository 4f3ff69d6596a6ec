// The members of an elastic job when ranks are lost and join again.
#include "gantry/comm/control/membership.h"

#include <gtest/gtest.h>

namespace gantry {
namespace {

// Three replicas of two ranks each. The ranks of a replica are contiguous, as with tensor parallelism.
Membership three_pairs(int min_replicas) {
  return Membership({.min_replicas = min_replicas, .replicas = {0, 0, 1, 1, 2, 2}});
}

TEST(Membership, ALostRankTakesItsReplica) {
  Membership job = three_pairs(1);
  EXPECT_TRUE(job.lose(3));
  EXPECT_EQ(job.ranks(), (std::set<int>{0, 1, 4, 5}));
  EXPECT_EQ(job.generation(), 1);
  EXPECT_EQ(job.members().ranks, (std::vector<int>{0, 1, 4, 5}));
}

TEST(Membership, FewerThanTheLeastReplicasAreNoJob) {
  Membership job = three_pairs(2);
  EXPECT_TRUE(job.lose(0));
  EXPECT_FALSE(job.lose(5));
  EXPECT_EQ(job.ranks(), (std::set<int>{2, 3, 4, 5}));
  EXPECT_EQ(job.generation(), 1);
}

TEST(Membership, AReplicaJoinsAsAWhole) {
  Membership job = three_pairs(1);
  job.lose(2);
  job.wait(2);
  EXPECT_FALSE(job.can_grow());
  job.wait(3);
  EXPECT_TRUE(job.can_grow());
  job.grow();
  EXPECT_EQ(job.ranks().size(), 6u);
  EXPECT_EQ(job.generation(), 2);
  EXPECT_FALSE(job.can_grow());
}

TEST(Membership, ARankThatEndsBeforeItJoinsIsNotWaitedFor) {
  Membership job = three_pairs(1);
  job.lose(2);
  job.wait(2);
  job.wait(3);
  job.give_up(3);
  job.grow();
  EXPECT_EQ(job.ranks(), (std::set<int>{0, 1, 4, 5}));
  EXPECT_EQ(job.generation(), 2);
}

}  // namespace
}  // namespace gantry
