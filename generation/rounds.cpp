#include "gantry/generation/rounds.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include "gantry/generation/text_group.h"
#include "gantry/generation/token_choice.h"
#include "gantry/pipeline/stage_link.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::generation {
namespace {

torch::Device device_of(const StageModule& module) {
  return module.parameters.empty() ? torch::Device(torch::kCPU) : module.parameters.front().tensor.device();
}

// Returns the rows of an image entry for these prompts. Entries per token are padded to the longest prompt of
// the call; only the columns of the longest of these prompts are returned.
torch::Tensor of_prompts(const std::string& name, const torch::Tensor& entry, std::int64_t first, std::int64_t count,
                         std::int64_t longest) {
  const torch::Tensor rows = entry.narrow(0, first, count);
  const bool is_of_tokens = name == "token_type_ids" || name == "position_ids";
  return is_of_tokens ? rows.narrow(1, rows.size(1) - longest, longest) : rows;
}

class Rounds {
 public:
  Rounds(const StagePlaces& places, const Plan& plan, const std::vector<TokenIds>& prompts, std::int64_t first_prompt)
      : places_(places), plan_(plan), device_(device_of(*places.module)) {
    if (places.pipeline) link_.emplace(*places.pipeline);
    const int stages = places.stages->num_stages();
    for (const auto& [begin, end] : split_evenly(static_cast<std::int64_t>(prompts.size()), stages)) {
      groups_.push_back(
          group_of({prompts.begin() + begin, prompts.begin() + end}, places.is_cached, first_prompt + begin));
      choices_.emplace_back(plan_, places.split, first_prompt + begin, end - begin);
    }
    while (static_cast<std::int64_t>(groups_.size()) < std::min<std::int64_t>(places.most_prompts, stages))
      groups_.push_back(group_of({}, false));
    if (places.replicas) without_texts_ = group_of({}, false);
    inputs_.resize(groups_.size());
    goes_on_.assign(groups_.size(), true);
    for (const int stage : places.stages->stages())
      for (int group = 0; group < static_cast<int>(groups_.size()); ++group) turns_.push_back({stage, group});
    // All ranks take turns in the same order, so no rank waits for a message that is sent later.
    std::sort(turns_.begin(), turns_.end(), [](const Turn& a, const Turn& b) {
      return std::pair(a.stage + a.group, a.stage) < std::pair(b.stage + b.group, b.stage);
    });
    first_sequence_ = first_prompt * plan.width;
  }

  std::vector<GeneratedSequence> run() {
    const auto gathered = places_.module->gather ? places_.module->gather() : nullptr;
    for (std::int64_t round = 0; std::any_of(goes_on_.begin(), goes_on_.end(), [](bool on) { return on; }); ++round) {
      std::vector<bool> is_known(groups_.size());
      for (const auto& [stage, index] : turns_) {
        learn(index, round);
        if (!is_known[index]) goes_on_[index] = goes_on_anywhere(index);
        is_known[index] = true;
        if (goes_on_[index]) forward(stage, index);
      }
      if (!turns_.empty()) continue;
      for (int index = 0; index < static_cast<int>(groups_.size()); ++index) {
        learn(index, round + 1);  // a rank without a stage only receives the choices
        goes_on_[index] = !groups_[index]->is_finished();
      }
    }
    if (link_) link_->flush();
    for (auto& send : sends_) send.wait();
    return collect();
  }

 private:
  struct Turn {
    int stage, group;
  };

  int last_stage() const { return places_.stages->num_stages() - 1; }
  // `first`: the index of the first prompt in the call.
  std::unique_ptr<TextGroup> group_of(std::vector<TokenIds> prompts, bool is_cached, std::int64_t first = 0) const {
    TensorDict encoder, images;
    std::int64_t longest = 0;
    for (const auto& prompt : prompts) longest = std::max(longest, static_cast<std::int64_t>(prompt.size()));
    for (const auto& [name, tensor] : plan_.images)
      images.set(name, of_prompts(name, tensor, first, static_cast<std::int64_t>(prompts.size()), longest));
    for (const auto& [name, tensor] : plan_.options.encoder)
      encoder.set(name, tensor.narrow(0, first, static_cast<std::int64_t>(prompts.size())));
    return std::make_unique<TextGroup>(std::move(prompts),
                                       TextGroup::Options{.width = plan_.width,
                                                          .max_new_tokens = plan_.max_new,
                                                          .is_cached = is_cached,
                                                          .begin = plan_.begin,
                                                          .encoder = std::move(encoder),
                                                          .images = std::move(images),
                                                          .parts = is_cached ? places_.parts : nullptr},
                                       device_);
  }
  // Returns whether the group needs another forward. With places.replicas, true if the group of any replica
  // needs one, because all of them run the same number of forwards. Call it after learn().
  bool goes_on_anywhere(int index) const {
    const bool mine = !groups_[index]->is_finished();
    if (!places_.replicas) return mine;
    return all_reduce_number(*places_.replicas, mine ? 1 : 0, ReduceOp::kMax) > 0;
  }
  // Returns the group that the next forward computes; the empty one if the group at `index` is finished.
  TextGroup& computed(int index) const { return groups_[index]->is_finished() ? *without_texts_ : *groups_[index]; }
  StageMessage message(int stage, int index) const {
    const auto& group = computed(index);
    return {StageMessage::Direction::kForward, stage, index,
            fmt::format("generate {} {}{}", group.texts().size(),
                        places_.is_cached && group.rounds() > 0 ? 1 : text_length(group),
                        group.reads_encoder() ? " with an encoder" : "")};
  }
  static std::size_t text_length(const TextGroup& group) {
    std::size_t length = 0;
    for (const auto& text : group.texts()) length = std::max(length, text.size());
    return length;
  }

  // Receives and applies the choices before this round, if another rank makes them.
  void learn(int index, std::int64_t round) {
    auto& group = *groups_[index];
    if (group.is_finished() || group.rounds() >= round || places_.stages->holds_last()) return;
    const TensorSpec spec{.shape = {group.sequences() + 1, 3}, .dtype = torch::kInt64, .device = device_};
    const torch::Tensor encoded =
        places_.pipeline->recv(spec, places_.stages->rank_of(last_stage()), decision_tag(index)).result();
    apply(index, Decision::decode(encoded));
  }

  static Tag decision_tag(int index) { return {Tag::Kind::kUser, 0, index, 0}; }

  void apply(int index, const Decision& decision) {
    groups_[index]->apply(decision);
    if (!plan_.options.on_token || plan_.is_beams()) return;
    std::int64_t sequence = first_sequence_;
    for (int before = 0; before < index; ++before) sequence += groups_[before]->sequences();
    for (std::size_t row = 0; row < decision.tokens.size(); ++row, ++sequence)
      if (decision.joined[row]) plan_.options.on_token(sequence, decision.tokens[row]);
  }

  void forward(int stage, int index) {
    auto& group = computed(index);
    const TensorDict full = group.input();
    const bool knows_length = places_.is_split_by_sequence && plan_.begin.empty();
    const RandomContext random{.sequence_length = knows_length ? full.at("input_ids").size(1) : 0};
    const ForwardScope scope({.random = random});
    TensorDict output = places_.module->forward(stage, stage == 0 ? full : take_input(stage, index),
                                                {.batch = full, .tokens = group.context()});
    if (stage == last_stage()) {
      if (!groups_[index]->is_finished()) choose(index, output.at("logits"));
      return;
    }
    if (places_.stages->holds(stage + 1)) {
      inputs_[index] = std::move(output);
      return;
    }
    link_->send(message(stage, index), places_.stages->rank_of(stage + 1), output);
    link_->collect();
  }

  TensorDict take_input(int stage, int index) {
    if (places_.stages->holds(stage - 1)) return std::move(inputs_[index]);
    return link_->receive(message(stage - 1, index), places_.stages->rank_of(stage - 1));
  }

  // Among the ranks that share a group's texts, the one that has the last tokens of the prompts chooses. The
  // logits of the other ranks for later tokens may differ in the last bits.
  bool chooses(int index) const { return !places_.sharing || places_.sharing->rank() == groups_[index]->chooser(); }

  Decision chosen(int index, const torch::Tensor& logits) {
    auto& group = *groups_[index];
    Decision decision;
    if (chooses(index)) {
      decision = choices_[index].choose(group.last_of(logits), group);
      if (plan_.options.ends && !plan_.is_beams() && plan_.options.ends()) decision.is_last = true;
    }
    if (!places_.sharing) return decision;
    torch::Tensor encoded =
        (chooses(index) ? decision.encode() : torch::empty({group.sequences() + 1, 3}, torch::kInt64)).to(device_);
    places_.sharing->broadcast(encoded, group.chooser()).wait();
    return Decision::decode(encoded);
  }

  void choose(int index, const torch::Tensor& logits) {
    const Decision decision = chosen(index, logits);
    std::erase_if(sends_, [](Work& send) { return send.done(); });
    const torch::Tensor encoded = decision.encode().to(device_);
    for (int rank = 0; rank < places_.stages->pipeline_size(); ++rank)
      if (rank != places_.stages->pipeline_rank())
        sends_.push_back(places_.pipeline->hand_over(encoded, rank, decision_tag(index)));
    apply(index, decision);
  }

  // Returns the sequences of a group, on the ranks of the last stage.
  std::vector<GeneratedSequence> sequences_of(int index) const {
    auto mine = choices_[index].sequences();
    if (!places_.sharing || !places_.stages->holds_last()) return mine;
    return from_text(broadcast_text(*places_.sharing, chooses(index) ? to_text(mine) : "", groups_[index]->chooser()));
  }

  // Returns the sequences of the last stage, on every rank.
  std::vector<GeneratedSequence> collect() const {
    std::vector<GeneratedSequence> all;
    for (std::size_t index = 0; index < choices_.size(); ++index)
      for (auto& sequence : sequences_of(static_cast<int>(index))) all.push_back(std::move(sequence));
    if (!places_.pipeline || places_.pipeline->size() == 1) return all;
    const std::string mine = places_.stages->holds_last() ? to_text(all) : std::string();
    return from_text(broadcast_text(*places_.pipeline, mine, places_.stages->rank_of(last_stage())));
  }

  const StagePlaces& places_;
  const Plan& plan_;
  torch::Device device_;
  std::optional<StageLink> link_;
  std::vector<std::unique_ptr<TextGroup>> groups_;
  std::unique_ptr<TextGroup> without_texts_;  // computed in place of a finished group, for the other replicas
  std::vector<bool> goes_on_;                 // by group
  std::vector<TokenChoice> choices_;          // by group; used on the last stage only
  std::vector<TensorDict> inputs_;            // by group: output of a stage whose successor is on this rank
  std::vector<Turn> turns_;                   // turns of this rank per round
  std::vector<Work> sends_;
  std::int64_t first_sequence_ = 0;
};

}  // namespace

std::vector<GeneratedSequence> run_rounds(const StagePlaces& places, const Plan& plan,
                                          const std::vector<TokenIds>& prompts, std::int64_t first_prompt) {
  const torch::NoGradGuard no_grad;
  return Rounds(places, plan, prompts, first_prompt).run();
}

std::string to_text(const std::vector<GeneratedSequence>& sequences) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& one : sequences) list.push_back({one.prompt, one.tokens, one.score, one.stopped});
  return list.dump();
}

std::vector<GeneratedSequence> from_text(const std::string& text) {
  std::vector<GeneratedSequence> sequences;
  for (const auto& item : nlohmann::json::parse(text)) sequences.push_back({item[0], item[1], item[2], item[3]});
  return sequences;
}

}  // namespace gantry::generation
