// A teacher with a layout of its own: the plan of the exchange, and steps that equal those of one rank.
#include "gantry/trainer/teacher.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/teacher_exchange.h"
#include "ranks.h"
#include "student_steps.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

// --- The plan ---

struct PlannedLayout {
  int pipeline, data, tensor;
  std::vector<std::string> order = {"pp", "dp", "tp"};
};

std::vector<RankBox> parts_of(const PlannedLayout& layout, const std::vector<Range>& samples, bool only_senders) {
  const int ranks = layout.pipeline * layout.data * layout.tensor;
  const Mesh mesh = Mesh::hybrid(ranks, layout.pipeline, layout.data, layout.tensor, layout.order);
  const PipelineStageManager stages(0, layout.pipeline);
  std::vector<RankBox> parts;
  for (const OutputRank& each : output_ranks(mesh, stages, shard(0, 7, layout.tensor), 7))
    if (each.sends || !only_senders)
      parts.push_back({each.rank, {{{samples[static_cast<std::size_t>(each.replica)]}, each.columns}}});
  return parts;
}

torch::Tensor part_of_full(const torch::Tensor& full, const Box& box) {
  const auto cut = [](const torch::Tensor& tensor, int dim, const std::vector<Range>& ranges) {
    std::vector<torch::Tensor> parts;
    for (const Range& range : ranges) parts.push_back(tensor.narrow(dim, range.begin, range.size()));
    return torch::cat(parts, dim);
  };
  return cut(cut(full, 0, box.dims[0]), 1, box.dims[1]);
}

TEST(TeacherExchange, GivesEveryRankItsPart) {
  const torch::Tensor full = torch::arange(5 * 7).view({5, 7});
  const std::vector<PlannedLayout> layouts = {
      {1, 1, 4}, {1, 4, 1}, {2, 2, 1}, {2, 1, 2}, {4, 1, 1}, {1, 2, 2}, {2, 2, 1, {"dp", "tp", "pp"}}};
  for (const PlannedLayout& from : layouts)
    for (const PlannedLayout& to : layouts) {
      const auto held = parts_of(from, samples_of_teachers(5, from.data), true);
      std::vector<Range> uneven(static_cast<std::size_t>(to.data), Range{5, 5});  // replicas without samples
      uneven.front() = {0, to.data == 1 ? 5 : 2};
      if (to.data > 1) uneven.back() = {2, 5};
      const auto needed = parts_of(to, uneven, false);
      for (const RankBox& target : needed) {
        torch::Tensor part = torch::full_like(part_of_full(full, target.box), -1);
        for (const BlockMove& move : moves_of_rank(target.rank, held, needed)) {
          if (move.to != target.rank) continue;
          const auto source = std::ranges::find(held, move.from, &RankBox::rank);
          ASSERT_NE(source, held.end());
          const auto block = [](const torch::Tensor& tensor, const Block& at) {
            return tensor.narrow(0, at.begin[0], at.size[0]).narrow(1, at.begin[1], at.size[1]);
          };
          EXPECT_TRUE((block(part, move.target) == -1).all().item<bool>()) << "an element arrives twice";
          block(part, move.target).copy_(block(part_of_full(full, source->box), move.source));
        }
        EXPECT_TRUE(part.equal(part_of_full(full, target.box)));
      }
    }
}

TEST(TeacherExchange, OneOfTheRanksWithFullLogitsSends) {
  const Mesh mesh = Mesh::hybrid(4, 2, 1, 2);
  const auto ranks = output_ranks(mesh, PipelineStageManager(0, 2), replicate(), 5);
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0].rank, 2);
  EXPECT_TRUE(ranks[0].sends);
  EXPECT_FALSE(ranks[1].sends);
  EXPECT_EQ(ranks[1].columns, (std::vector<Range>{{0, 5}}));
}

TEST(TeacherExchange, ARoundHasTheReplicasWithEqualShapes) {
  const auto note = [](std::int64_t samples, std::int64_t tokens) {
    return BatchNote{
        .samples = samples, .tokens_per_sample = tokens, .entries = {{"input_ids", torch::kInt64, {tokens}}}};
  };
  const auto rounds = rounds_of({note(2, 8), note(3, 6), note(0, 5), note(1, 8)});
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_EQ(rounds[0].samples, (std::vector<Range>{{0, 2}, {}, {}, {2, 3}}));
  EXPECT_EQ(rounds[0].size, 3);
  EXPECT_EQ(rounds[1].samples, (std::vector<Range>{{}, {0, 3}, {}, {}}));
  EXPECT_EQ(rounds[1].example, 1u);
}

TEST(TeacherExchange, LargePartsArriveInSeveralMessages) {
  run_ranks({.data = 2}, [](World& world, ProcessGroupMesh& mesh) {
    constexpr std::int64_t kRows = 5, kColumns = std::int64_t{3} << 20;
    const std::vector<RankBox> held = {{0, {{{{0, kRows}}, {{0, kColumns}}}}}},
                               needed = {{1, {{{{0, kRows}}, {{0, kColumns}}}}}};
    const torch::Tensor full = torch::arange(kRows * kColumns).view({kRows, kColumns});
    torch::Tensor target = torch::zeros({world.rank() == 1 ? kRows : 0, kColumns}, torch::kInt64);
    exchange_blocks({.moves = moves_of_rank(world.rank(), held, needed), .most_rows = kRows, .row_bytes = 8 * kColumns},
                    world.rank() == 0 ? full : torch::Tensor(), target, mesh.world_group());
    EXPECT_TRUE(world.rank() == 0 || target.equal(full));
  });
}

// --- Steps ---

void expect_steps_of_one_rank(const std::vector<StudentRun>& runs) {
  const auto expected = steps_of_student({});
  ASSERT_EQ(expected.size(), 2u);
  EXPECT_GT(std::abs(expected[1].loss - expected[0].loss), 1e-4);
  for (const StudentRun& run : runs) {
    const std::string label =
        fmt::format("pp {} dp {} tp {}, teacher tp {} pp {}", run.layout.pipeline, run.layout.data, run.layout.tensor,
                    run.teacher ? run.teacher->tensor : 0, run.teacher ? run.teacher->pipeline : 0);
    const auto steps = steps_of_student(run);
    ASSERT_EQ(steps.size(), expected.size()) << label;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_NEAR(steps[i].loss, expected[i].loss, 1e-10) << label << " step " << i;
      ASSERT_EQ(steps[i].gradients.size(), expected[i].gradients.size()) << label;
      for (const auto& [name, gradient] : expected[i].gradients)
        EXPECT_LE((steps[i].gradients.at(name) - gradient).abs().max().item<double>(), 1e-10)
            << label << " step " << i << " " << name;
    }
  }
}

TEST(TeacherLayouts, StepsEqualThoseOfOneRank) {
  expect_steps_of_one_rank({
      {.layout = {}, .teacher = TeacherParallelConfig{}},
      {.layout = {.data = 2}, .teacher = TeacherParallelConfig{.tensor = 2}, .samples = {3, 2}},
      {.layout = {.pipeline = 2, .tensor = 2}, .teacher = TeacherParallelConfig{.tensor = 4}, .microbatches = 2},
      {.layout = {.pipeline = 2, .tensor = 2}, .teacher = TeacherParallelConfig{.pipeline = 2}},
      {.layout = {.pipeline = 2, .tensor = 2}, .teacher = TeacherParallelConfig{}, .microbatches = 2},
      {.layout = {.pipeline = 4}, .teacher = TeacherParallelConfig{.tensor = 2}, .microbatches = 3},
      {.layout = {.pipeline = 2, .tensor = 2},
       .teacher = TeacherParallelConfig{.tensor = 2},
       .microbatches = 2,
       .sequence_parallel = true},
      {.layout = {.context = 2}, .teacher = TeacherParallelConfig{.tensor = 2}},
      {.layout = {.tensor = 2, .context = 2}, .teacher = TeacherParallelConfig{.pipeline = 2}, .microbatches = 2},
  });
}

// The teacher has two heads of keys, and the student four. So the ranks of cp divide a sequence in different ways.
TEST(TeacherLayouts, RanksMayHaveOtherTokensInTheLayoutOfTheStudent) {
  expect_steps_of_one_rank({{.layout = {.tensor = 2, .context = 2}},
                            {.layout = {.data = 2, .tensor = 2, .context = 2}, .samples = {5, 0}, .microbatches = 2}});
}

TEST(TeacherLayouts, ReplicasMayHaveOtherLengthsAndNoSamples) {
  expect_steps_of_one_rank({
      {.layout = {.data = 2}, .teacher = TeacherParallelConfig{.tensor = 2}, .samples = {1, 4}, .microbatches = 2},
      {.layout = {.data = 4},
       .teacher = TeacherParallelConfig{.tensor = 2},
       .samples = {2, 0, 1, 2},
       .microbatches = 2},
      {.layout = {.data = 4}, .teacher = TeacherParallelConfig{.pipeline = 2}, .samples = {0, 3, 1, 1}},
      {.layout = {.data = 2, .tensor = 2},
       .teacher = TeacherParallelConfig{.tensor = 4},
       .samples = {5, 0},
       .microbatches = 3},
      {.layout = {.pipeline = 2, .data = 2}, .teacher = TeacherParallelConfig{}, .samples = {2, 3}, .microbatches = 2},
  });
}

// The error text of the teacher on rank 0.
std::string fault_of_teacher_run(const Layout& layout, const TeacherParallelConfig& teacher) {
  StudentRun run{.layout = layout, .teacher = teacher};
  const Config config = config_of_student(run);
  std::string line;
  start_ranks()(config, [&](World& world) {
    Booster booster{std::make_unique<HybridParallelPlugin>(world, config)};
    const auto parts = objective_parts(config.train.objective);
    auto boosted = booster.boost(build_model(config), nullptr, build_criterion(config, parts));
    const std::string thrown = thrown_by<ConfigError>([&] { Teacher(config, world, booster, boosted, parts.teacher); });
    if (world.is_main()) line = thrown;
  });
  return line;
}

TEST(TeacherLayouts, RefusesALayoutThatDoesNotFitTheTeacher) {
  const std::string key = "train.objective.teacher_parallel: ";
  EXPECT_THAT(fault_of_teacher_run({.data = 8}, {.tensor = 8}),
              HasSubstr(key + "the teacher does not fit its layout: "));
  EXPECT_THAT(fault_of_teacher_run({.data = 8}, {.tensor = 8}), HasSubstr("8 ranks for 4 query heads"));
  EXPECT_THAT(fault_of_teacher_run({.data = 3}, {.pipeline = 3}),
              HasSubstr(key + "the teacher does not fit its layout: "));
}

}  // namespace
}  // namespace gantry::testing
