// Random damage to valid schedules: validate() must refuse what an independent brute-force run can't finish, and accept
// what it can.
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/schedule/validate.h"
#include "random_schedule.h"

namespace gantry::schedule {
namespace {

using testing::Judge;
using testing::RandomSchedule;

struct Place {
  std::vector<Action>* row;
  int position;
  Action& action() const { return (*row)[position]; }
};

Place pick(Schedule& schedule, RandomSchedule& random) {
  for (;;) {
    auto& row = schedule.actions[random.below(schedule.ranks())];
    if (!row.empty()) return {&row, random.below(static_cast<int>(row.size()))};
  }
}

void retarget(Action& action, const Schedule& schedule, RandomSchedule& random) {
  switch (random.below(3)) {
    case 0:
      action.stage = random.below(schedule.stages());
      return;
    case 1:
      action.microbatch = random.below(schedule.microbatches);
      return;
    default:
      action.kind = static_cast<ActionKind>(random.below(8));
      return;
  }
}

void mutate(Schedule& schedule, RandomSchedule& random) {
  const Place place = pick(schedule, random);
  switch (random.below(6)) {
    case 0:
      std::swap(place.action(), pick(schedule, random).action());
      return;
    case 1:  // neighbours: the mutations that most often stay valid
      if (place.position > 0) std::swap(place.action(), (*place.row)[place.position - 1]);
      return;
    case 2:
      place.row->erase(place.row->begin() + place.position);
      return;
    case 3: {
      const Action copy = place.action();
      auto& row = *place.row;
      row.insert(row.begin() + random.below(static_cast<int>(row.size()) + 1), copy);
      return;
    }
    case 4:
      retarget(place.action(), schedule, random);
      return;
    default:
      place.action().overlaps_next = !place.action().overlaps_next;
      return;
  }
}

bool is_accepted(const Schedule& schedule) {
  try {
    validate(schedule);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

Schedule base_schedule(RandomSchedule& random) {
  Schedule schedule;
  switch (random.below(3)) {
    case 0:
      schedule = generate("1f1b", 1 + random.below(4), 1 + random.below(5));
      break;
    case 1:
      schedule = generate("gpipe", 1 + random.below(4), 1 + random.below(5));
      break;
    default:
      schedule = random.make(4, 2, 4);
  }
  if (random.below(8) == 0) schedule = forward_only(schedule);
  return random.below(2) == 0 ? lower(schedule) : schedule;
}

TEST(Mutations, AreRefusedExactlyWhenABruteForceRunFails) {
  RandomSchedule random(2024);
  int refused = 0;
  int still_valid = 0;
  for (int i = 0; i < 30'000; ++i) {
    Schedule schedule = base_schedule(random);
    for (int n = 1 + random.below(2); n > 0; --n) {
      if (std::ranges::all_of(schedule.actions, [](const auto& row) { return row.empty(); })) break;
      mutate(schedule, random);
    }
    const bool expected = Judge(schedule).is_valid();
    ASSERT_EQ(is_accepted(schedule), expected) << i << "\n" << to_csv(schedule);
    ++(expected ? still_valid : refused);
  }
  // Both outcomes must have been tried, or the comparison shows nothing.
  EXPECT_GT(refused, 10'000);
  EXPECT_GT(still_valid, 2'000);
}

}  // namespace
}  // namespace gantry::schedule
