// train.objective.teacher_parallel, and the keys that a teacher with a layout of its own rejects.
#include "gantry/core/config/teacher_layout.h"

#include <gtest/gtest.h>

#include "thrown_by.h"

namespace gantry {
namespace {

using testing::thrown_by;

constexpr const char* kRefusal = "config:4:48: train.objective.teacher_parallel: ";

Config distilled(const std::string& teacher, const std::string& parallel, const std::string& more = "") {
  return Config::parse(
      "model: {policy: gpt2, config: {n_layer: 2}}\nparallel: " + parallel +
      "\nschedule: {microbatch_size: 1}\ntrain: {objective: {name: distill, teacher: x, teacher_parallel: " + teacher +
      "}}\n" + more);
}

std::string teacher_fault(const std::string& teacher, const std::string& parallel, const std::string& more = "") {
  return thrown_by<ConfigError>([&] { distilled(teacher, parallel, more); });
}

TEST(TeacherLayout, IsOverTheRanksOfTheRun) {
  const Config own = distilled("{tensor: 2}", "{pipeline: 4}");
  EXPECT_EQ(teacher_mesh(own, 4)->describe(), "pp 1 x dp 2 x tp 2");
  EXPECT_EQ(teacher_mesh(own, 12)->describe(), "pp 1 x dp 6 x tp 2");
  EXPECT_EQ(teacher_mesh(distilled("{pipeline: 2}", "{tensor: 4, order: [dp, tp, pp]}"), 4)->describe(),
            "dp 2 x tp 1 x pp 2");
  EXPECT_FALSE(teacher_mesh(Config(), 4));
  const Config again = Config::parse(distilled("{tensor: 3, pipeline: 2}", "{data: 6}").to_yaml());
  EXPECT_EQ(again.train.objective.teacher_parallel->tensor, 3);
  EXPECT_EQ(again.train.objective.teacher_parallel->pipeline, 2);
}

TEST(TeacherLayout, MustDivideTheRanks) {
  const std::string says =
      "tensor 3 * pipeline 1 = 3 does not divide the 4 ranks of this job; expected sizes whose "
      "product divides the ranks; change tensor or pipeline of the teacher";
  EXPECT_EQ(teacher_fault("{tensor: 3}", "{data: 2, tensor: 2}"), kRefusal + says);
  const Config any = distilled("{tensor: 3}", "{tensor: 2}");  // a launcher may start 6 ranks
  EXPECT_EQ(thrown_by<ConfigError>([&] { teacher_mesh(any, 4); }), "train.objective.teacher_parallel: " + says);
  EXPECT_EQ(teacher_mesh(any, 6)->describe(), "pp 1 x dp 2 x tp 3");
}

TEST(TeacherLayout, OtherSettingsAreRejectedByName) {
  EXPECT_EQ(teacher_fault("{tensor: 2}", "{tensor: 2}", "elastic: {}"), "no error");
  EXPECT_EQ(teacher_fault("{tensor: 2}", "{}", "elastic: {}"),
            std::string(kRefusal) +
                "tensor 2 * pipeline 1 = 2 does not divide the 1 ranks of a replica of an elastic "
                "job; expected sizes whose product divides the ranks; change tensor or pipeline of "
                "the teacher");
  for (const auto& [teacher, says] :
       {std::pair("{tensor: 0}", "train.objective.teacher_parallel.tensor: '0'; expected a whole number from 1"),
        {"{pipeline: x}", "train.objective.teacher_parallel.pipeline: 'x'; expected a whole number from 1"},
        {"{context: 2}", "train.objective.teacher_parallel.context: unknown key"},
        {"2", "train.objective.teacher_parallel: the value is not a mapping"}})
    EXPECT_NE(teacher_fault(teacher, "{}").find(says), std::string::npos) << teacher_fault(teacher, "{}");
}

}  // namespace
}  // namespace gantry
