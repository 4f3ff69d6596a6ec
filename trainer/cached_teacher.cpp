#include "gantry/trainer/cached_teacher.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "gantry/booster/recipe.h"
#include "gantry/booster/run_task.h"
#include "gantry/checkpoint/disk_work.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/numbered_samples.h"
#include "gantry/data/sample_digest.h"
#include "gantry/plugins/distilled_tokens.h"
#include "gantry/plugins/top_k_loss.h"
#include "gantry/plugins/top_tokens.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/model_digest.h"
#include "gantry/trainer/teacher.h"
#include "gantry/trainer/teacher_exchange.h"

namespace gantry {
namespace {

// The samples of a data set, and the file of their log-probabilities.
struct StoredSamples {
  SampleSource source;
  bool is_held_out = false;
  TeacherCacheForm form = {};
  bool is_stored = false;
};

std::int64_t tokens_of(const SampleSource& source) {
  const auto labels = std::ranges::find(source.entries, "labels", &SampleEntry::name);
  return labels == source.entries.end() ? 0 : labels->length;
}

// Everything that the log-probabilities depend on.
std::string key_of(const Config& config, const std::string& teacher, const std::string& samples) {
  return hash_of(fmt::format("{}\n{}\n{}\n{}\n{}", teacher, samples, config.train.objective.top_k,
                             vocabulary_of(config), config.precision));
}

void identify(const Config& config, const std::string& teacher, const OpenProgress& progress, StoredSamples& samples) {
  const SampleSource in_order = samples_in_order(samples.source);
  const auto data = in_order.open(progress).front().dataset;  // held, so that the digest does not encode it again
  samples.form.samples = data->size();
  const int workers = config.data.workers > 0 ? config.data.workers : at::get_num_threads();
  samples.form.key = key_of(config, teacher, sample_digest(in_order, workers, progress));
  const std::string& folder = config.train.objective.teacher_cache;
  samples.is_stored = path_exists(teacher_cache_path(folder, samples.form));
  if (samples.is_stored) TeacherCache(folder, samples.form);  // throws if it is damaged
}

// Rank 0 reads the data and the teacher's files on behalf of all ranks.
void identify_all(const Config& config, ProcessGroup& world, std::vector<StoredSamples>& all) {
  DiskProgress progress;
  nlohmann::json known = nlohmann::json::array();
  work_on_disk(world, disk_limits(config.comm.timeout_seconds, "looking for stored log-probabilities"), progress, [&] {
    if (world.rank() != 0) return;
    const auto add = [&](std::uint64_t bytes) { progress.add(bytes); };
    const std::string& folder = config.train.objective.teacher;
    const std::string teacher = digest_of_files({folder + "/config.json"}, add) + digest_of_model(folder, add);
    for (StoredSamples& each : all) {
      identify(config, teacher, add, each);
      known.push_back({each.form.key, each.form.samples, each.is_stored});
    }
  });
  known = nlohmann::json::parse(broadcast_text(world, known.dump(), 0));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].form.key = known[i][0];
    all[i].form.samples = known[i][1];
    all[i].is_stored = known[i][2];
  }
}

// Computes the numbers of the samples batch by batch, and gathers them on rank 0.
class StoringPass {
 public:
  StoringPass(const Config& config, World& world, Booster& booster, const Boosted& student, Teacher& teacher,
              const TeacherLogits& logits)
      : config_(config),
        device_(world.device()),
        booster_(booster),
        student_(student),
        teacher_(teacher),
        logits_(logits),
        layout_(booster.plugin(), student, {.vocabulary = vocabulary_of(config)}) {}

  void store(const StoredSamples& samples) {
    DataLoader loader(samples_in_order(samples.source),
                      {.global_batch = config_.data.batch_size, .shuffle = false, .keep_last = true});
    booster_.distribute(loader, student_);
    ProcessGroup& world = booster_.mesh().world_group();
    DiskProgress progress;
    WatchedFiles files(system_files(), progress);
    std::optional<TeacherCacheWriter> writer;
    if (world.rank() == 0) writer.emplace(config_.train.objective.teacher_cache, samples.form, files);
    for (std::int64_t step = 0; step < loader.steps(); ++step) {
      const Batch batch = teacher_.prepare(loader.batch(step));
      const torch::Tensor numbers = gathered(numbers_of(batch, samples.form), batch, samples.form, world);
      if (writer) writer->add(numbers.cpu());
    }
    work_on_disk(world, disk_limits(config_.comm.timeout_seconds, "storing log-probabilities"), progress, [&] {
      if (writer) writer->commit();
    });
  }

 private:
  const OutputRank* own_rank() const {
    const auto own = std::ranges::find(layout_.logits, booster_.mesh().rank(), &OutputRank::rank);
    return own == layout_.logits.end() ? nullptr : &*own;
  }

  // [samples, tokens of this rank, 2 k]; undefined on ranks without logits.
  torch::Tensor numbers_of(const Batch& batch, const TeacherCacheForm& form) const {
    if (!own_rank()) return {};
    const SplitDim* split = split_logits(booster_.plugin().split_outputs(student_));
    std::vector<torch::Tensor> all;
    for (std::int64_t sample = 0; sample < batch.samples; ++sample)
      all.push_back(packed(top_tokens(logits_.logits[sample], form.k, split)));
    return all.empty() ? torch::Tensor() : torch::stack(all);
  }

  // The first of the ranks with the same tokens sends them.
  std::vector<RankBox> held_parts(const Batch& batch, const TeacherCacheForm& form) const {
    const auto pieces = split_evenly(batch.global_samples, layout_.replicas);
    std::vector<RankBox> held;
    for (const OutputRank& each : layout_.logits) {
      const auto replica = static_cast<std::size_t>(each.replica);
      const bool is_first = std::ranges::find_if(layout_.logits, [&](const OutputRank& other) {
                              return other.replica == each.replica && other.context == each.context;
                            })->rank == each.rank;
      if (!is_first || replica >= pieces.size()) continue;
      held.push_back({each.rank,
                      {{{{pieces[replica].first, pieces[replica].second}},
                        layout_.tokens_of(each, form.tokens),
                        {{0, 2 * form.k}}}}});
    }
    return held;
  }

  // [samples of all replicas, tokens, 2 k] on rank 0, and no elements on the others.
  torch::Tensor gathered(const torch::Tensor& own, const Batch& batch, const TeacherCacheForm& form,
                         ProcessGroup& world) const {
    const std::int64_t samples = batch.global_samples, numbers = 2 * form.k;
    torch::Tensor all = torch::empty({world.rank() == 0 ? samples : 0, form.tokens, numbers},
                                     torch::TensorOptions(form.type()).device(device_));
    const std::vector<RankBox> needed = {{0, {{{{0, samples}}, {{0, form.tokens}}, {{0, numbers}}}}}};
    exchange_blocks({.moves = moves_of_rank(world.rank(), held_parts(batch, form), needed),
                     .most_rows = samples,
                     .row_bytes = form.tokens * numbers * static_cast<std::int64_t>(c10::elementSize(form.type()))},
                    own, all, world);
    return all;
  }

  const Config& config_;
  torch::Device device_;
  Booster& booster_;
  const Boosted& student_;
  Teacher& teacher_;
  const TeacherLogits& logits_;
  LogitsLayout layout_;
};

void require_vocabulary(const Config& config) {
  const std::int64_t k = config.train.objective.top_k, vocabulary = vocabulary_of(config);
  if (k > vocabulary)
    throw ConfigError({"train.objective.top_k", fmt::format("{} is above the vocabulary of {} tokens", k, vocabulary),
                       "at most the tokens of the vocabulary", "lower it, or remove it for the full distribution"});
}

std::string described(const ObjectiveConfig& objective, const StoredSamples& samples) {
  return fmt::format("the {} largest log-probabilities of each token of {} samples", objective.top_k,
                     samples.form.samples);
}

}  // namespace

CachedTeacher::CachedTeacher(const Config& config, World& world, Booster& booster, const Boosted& student,
                             const std::shared_ptr<TeacherLogits>& logits)
    : k_(config.train.objective.top_k), reads_(booster.plugin().stages().holds_last()) {
  require_vocabulary(config);
  const ObjectiveConfig& objective = config.train.objective;
  std::vector<StoredSamples> all;
  if (!config.evaluation.only) all.push_back({.source = build_samples(config)});
  if (!config.evaluation.path.empty()) all.push_back({.source = build_evaluation_samples(config), .is_held_out = true});
  for (StoredSamples& each : all) {
    each.form.tokens = tokens_ = tokens_of(each.source);
    each.form.k = k_;
    each.form.is_double = config.precision == "float64";
  }
  type_ = all.front().form.type();
  identify_all(config, booster.mesh().world_group(), all);
  std::optional<Teacher> teacher;
  for (const StoredSamples& each : all) {
    const std::string path = teacher_cache_path(objective.teacher_cache, each.form);
    if (world.is_main())
      fmt::print("teacher: {} {} {}\n", each.is_stored ? "read" : "computing", described(objective, each),
                 each.is_stored ? "from " + path + ", without the teacher" : "for " + path);
    if (each.is_stored) continue;
    if (!teacher) teacher.emplace(config, world, booster, student, logits, /*is_temporary=*/true);
    StoringPass(config, world, booster, student, *teacher, *logits).store(each);
  }
  teacher.reset();
  *logits = {};
  if (!reads_) return;
  for (const StoredSamples& each : all)
    (each.is_held_out ? held_out_ : trained_) = std::make_unique<TeacherCache>(objective.teacher_cache, each.form);
}

Batch CachedTeacher::prepare(Batch batch) const {
  const auto options = torch::TensorOptions(type_).device(reads_ ? torch::kCPU : torch::kMeta);
  torch::Tensor all = torch::empty({batch.samples, tokens_, 2 * k_}, options);
  if (reads_) {
    const torch::Tensor numbers = batch.tensors.at(kSampleNumbers).cpu().contiguous();
    for (std::int64_t i = 0; i < batch.samples; ++i) {
      const std::int64_t number = numbers.const_data_ptr<std::int64_t>()[i];
      torch::Tensor row = all[i];
      if (number < 0)
        held_out_->read(-1 - number, row);
      else
        trained_->read(number, row);
    }
  }
  batch.tensors.set(kTeacherTops, all);
  return batch;
}

}  // namespace gantry
