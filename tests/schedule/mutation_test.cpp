// Random damage to valid schedules: validate() must reject exactly the schedules that an independent
// brute-force run cannot finish.
#include <gtest/gtest.h>
#include <sstream>

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
  switch (random.below(7)) {
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
    case 5: {  // moved to another position of its row
      const Action moved = place.action();
      auto& row = *place.row;
      row.erase(row.begin() + place.position);
      row.insert(row.begin() + random.below(static_cast<int>(row.size()) + 1), moved);
      return;
    }
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

bool is_empty(const Schedule& schedule) {
  return std::ranges::all_of(schedule.actions, [](const auto& row) { return row.empty(); });
}

// Valid schedules of every kind: compute-only and lowered, with and without backwards.
class Pool {
 public:
  Pool(RandomSchedule& random, const std::string& generator, int count) {
    for (int i = 0; i < count; ++i) add(generator.empty() ? random.make(4, 3, 5) : random.make(generator, 5, 7));
  }

  const Schedule& pick(RandomSchedule& random) const { return all_[random.below(static_cast<int>(all_.size()))]; }

 private:
  void add(const Schedule& schedule) {
    for (const Schedule& each : {schedule, schedule, forward_only(schedule)}) {
      all_.push_back(each);
      all_.push_back(lower(each));
    }
  }

  std::vector<Schedule> all_;
};

struct Outcomes {
  int refused = 0;
  int still_valid = 0;
};

// Applies one or two mutations to schedules from the pool.
Outcomes mutate_and_compare(const Pool& pool, RandomSchedule& random, int count) {
  Outcomes outcomes;
  for (int i = 0; i < count; ++i) {
    Schedule schedule = pool.pick(random);
    for (int n = 1 + random.below(2); n > 0 && !is_empty(schedule); --n) mutate(schedule, random);
    const bool expected = Judge(schedule).is_valid();
    EXPECT_EQ(is_accepted(schedule), expected) << i << "\n" << to_csv(schedule);
    if (::testing::Test::HasFailure()) break;
    ++(expected ? outcomes.still_valid : outcomes.refused);
  }
  return outcomes;
}

class Mutations : public ::testing::TestWithParam<std::string> {};

TEST_P(Mutations, AreRefusedExactlyWhenABruteForceRunFails) {
  RandomSchedule random(2024);
  const Pool pool(random, GetParam(), GetParam().empty() ? 300 : 12);
  const Outcomes outcomes = mutate_and_compare(pool, random, 3'000);
  // Both outcomes must have been tried, or the comparison shows nothing.
  EXPECT_GT(outcomes.refused, 500);
  EXPECT_GT(outcomes.still_valid, 100);
}

std::vector<std::string> kinds() {
  auto names = generator_names();
  names.emplace_back();  // random placements, split and full backwards, overlapped pairs
  return names;
}

INSTANTIATE_TEST_SUITE_P(Schedules, Mutations, ::testing::ValuesIn(kinds()), [](const auto& named) {
  return named.param.empty() ? std::string("any") : "of_" + named.param;
});

// Returns the text in the form of to_csv(): without spaces around actions, and without idle cells.
std::string tidied(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\t'; });
  std::string tidy;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); tidy += line + "\n") {
    for (std::size_t comma; (comma = line.find(",,")) != std::string::npos;) line.erase(comma, 1);
    if (line.starts_with(',')) line.erase(0, 1);
    if (line.ends_with(',')) line.pop_back();
  }
  return tidy;
}

// A mutated text is either rejected or read exactly as it is written.
TEST(MutatedText, IsRefusedOrReadsBackTheSame) {
  RandomSchedule random(7);
  const std::string characters = "0123456789FBIWSENDRCV_();, x-.\t\"#";
  int refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string text = to_csv(random.below(2) == 0 ? random.make(3, 2, 3) : lower(random.make(3, 2, 3)));
    const auto at = static_cast<std::size_t>(random.below(static_cast<int>(text.size())));
    const char character = characters[random.below(static_cast<int>(characters.size()))];
    text.replace(at, static_cast<std::size_t>(random.below(2)), 1, character);
    try {
      const Schedule schedule = from_csv(text, "mutated");
      ASSERT_EQ(to_csv(schedule), tidied(text)) << text;
      ASSERT_EQ(is_accepted(schedule), Judge(schedule).is_valid()) << text;
    } catch (const ConfigError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5'000);
}

}  // namespace
}  // namespace gantry::schedule
