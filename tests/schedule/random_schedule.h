// Random valid schedules and an independent judge of validity, for property tests. The judge shares no code
// with validate(): it counts actions by their text and then tries to run the rows.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule::testing {

class RandomSchedule {
 public:
  explicit RandomSchedule(unsigned seed) : random_(seed) {}

  int below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }

  double between(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }

  // Returns a schedule of a generator with random sizes, chunks and times, and a random memory limit or group
  // size if the generator has one.
  Schedule make(const std::string& generator, int max_ranks, int max_microbatches) {
    const int ranks = 1 + below(max_ranks), microbatches = 1 + below(max_microbatches);
    const bool any_chunks = generator == "interleaved_1f1b" || generator == "breadth_first";
    GeneratorOptions options{.forward = between(0.5, 2),
                             .input_gradient = between(0.5, 2),
                             .weight_gradient = between(0.1, 2),
                             .hop = below(2) == 0 ? 0 : between(0, 0.5)};
    if (below(2) == 0) options = {};
    if (generator == "zb_auto" && below(2) == 0) options.memory_limit = 1 + below(3 * ranks);
    if (generator == "interleaved_1f1b" && below(2) == 0) options.group_size = ranks + below(4);
    return generate(generator, ranks, microbatches, any_chunks ? 1 + below(3) : 0, options);
  }

  // Any placement, split and full backwards, overlapped pairs, and an order that a random run has shown to work.
  Schedule make(int max_ranks, int max_chunks, int max_microbatches) {
    Schedule schedule;
    schedule.name = "random";
    const int ranks = 1 + below(max_ranks);
    schedule.microbatches = 1 + below(max_microbatches);
    schedule.actions.resize(ranks);
    schedule.stages_of_rank.resize(ranks);
    std::vector<int> places;
    for (int rank = 0; rank < ranks; ++rank) places.insert(places.end(), 1 + below(max_chunks), rank);
    std::shuffle(places.begin(), places.end(), random_);
    for (int stage = 0; stage < static_cast<int>(places.size()); ++stage)
      schedule.stages_of_rank[places[stage]].push_back(stage);
    fill(schedule, places);
    return schedule;
  }

 private:
  using Key = std::pair<int, int>;  // stage, microbatch

  void fill(Schedule& schedule, const std::vector<int>& places) {
    const int stages = static_cast<int>(places.size());
    std::vector<Action> left;
    for (int stage = 0; stage < stages; ++stage) {
      for (int microbatch = 0; microbatch < schedule.microbatches; ++microbatch) {
        left.push_back({ActionKind::kForward, stage, microbatch});
        if (below(2) == 0) {
          left.push_back({ActionKind::kBackward, stage, microbatch});
        } else {
          left.push_back({ActionKind::kInputGradient, stage, microbatch});
          left.push_back({ActionKind::kWeightGradient, stage, microbatch});
        }
      }
    }
    std::set<Key> forward;
    std::set<Key> backward;
    while (!left.empty()) {
      std::vector<Action> ready;
      for (const auto& action : left)
        if (is_ready(action, stages, forward, backward)) ready.push_back(action);
      const Action first = ready[below(static_cast<int>(ready.size()))];
      emit(schedule, places, left, first, forward, backward);
      if (first.kind != ActionKind::kForward || below(3) != 0) continue;
      for (const auto& second : ready) {
        const bool pairs = second.kind == ActionKind::kBackward || second.kind == ActionKind::kInputGradient;
        if (!pairs || places[second.stage] != places[first.stage]) continue;
        schedule.actions[places[first.stage]].back().overlaps_next = true;
        emit(schedule, places, left, second, forward, backward);
        break;
      }
    }
  }

  static bool is_ready(const Action& action, int stages, const std::set<Key>& forward, const std::set<Key>& backward) {
    const auto [stage, microbatch] = std::pair(action.stage, action.microbatch);
    switch (action.kind) {
      case ActionKind::kForward:
        return stage == 0 || forward.contains({stage - 1, microbatch});
      case ActionKind::kWeightGradient:
        return backward.contains({stage, microbatch});
      default:
        return forward.contains({stage, microbatch}) &&
               (stage == stages - 1 || backward.contains({stage + 1, microbatch}));
    }
  }

  static void emit(Schedule& schedule, const std::vector<int>& places, std::vector<Action>& left, const Action& action,
                   std::set<Key>& forward, std::set<Key>& backward) {
    schedule.actions[places[action.stage]].push_back(action);
    left.erase(std::find(left.begin(), left.end(), action));
    if (action.kind == ActionKind::kForward) forward.insert({action.stage, action.microbatch});
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kInputGradient)
      backward.insert({action.stage, action.microbatch});
  }

  std::mt19937 random_;
};

// Judges by brute force a schedule whose placement is valid.
class Judge {
 public:
  explicit Judge(const Schedule& schedule) : schedule_(schedule) {
    for (std::size_t rank = 0; rank < schedule.stages_of_rank.size(); ++rank)
      for (const int stage : schedule.stages_of_rank[rank]) rank_of_[stage] = static_cast<int>(rank);
    for (const auto& row : schedule.actions)
      for (const auto& action : row) {
        ++count_[to_string(action)];
        lowered_ = lowered_ || !action.is_compute();
        trains_ = trains_ || (action.is_compute() && action.kind != ActionKind::kForward);
      }
  }

  bool is_valid() { return rows_are_sound() && counts_are_right() && runs(); }

 private:
  static std::string text(int stage, const std::string& kind, int microbatch) {
    return std::to_string(stage) + kind + std::to_string(microbatch);
  }
  int stages() const { return static_cast<int>(rank_of_.size()); }
  bool apart(int stage, int other) { return other >= 0 && other < stages() && rank_of_[stage] != rank_of_[other]; }

  bool rows_are_sound() {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      const auto& row = schedule_.actions[rank];
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (!rank_of_.contains(row[i].stage) || rank_of_[row[i].stage] != rank) return false;
        if (!row[i].overlaps_next) continue;
        if (i + 1 == row.size() || row[i].kind != ActionKind::kForward || row[i + 1].overlaps_next) return false;
        const std::string second = to_string(row[i + 1].kind);
        if (second != "B" && second != "I") return false;
      }
    }
    return true;
  }

  bool counts_are_right() {
    std::map<std::string, int> expected;
    for (int s = 0; s < stages(); ++s) {
      for (int m = 0; m < schedule_.microbatches; ++m) {
        ++expected[text(s, "F", m)];
        if (lowered_ && apart(s, s + 1)) ++expected[text(s, "SEND_F", m)], ++expected[text(s + 1, "RECV_F", m)];
        if (!trains_) continue;
        if (count_.contains(text(s, "B", m)))
          ++expected[text(s, "B", m)];
        else
          ++expected[text(s, "I", m)], ++expected[text(s, "W", m)];
        if (lowered_ && apart(s, s - 1)) ++expected[text(s, "SEND_B", m)], ++expected[text(s - 1, "RECV_B", m)];
      }
    }
    return expected == count_;
  }

  bool has(const std::string& action) const { return done_.contains(action); }
  bool has_backward(int s, int m) const { return has(text(s, "B", m)) || has(text(s, "I", m)); }

  bool data_is_there(const Action& action) {
    const auto [s, m] = std::pair(action.stage, action.microbatch);
    const std::string kind = to_string(action.kind);
    if (kind == "F") return s == 0 || has(lowered_ && apart(s, s - 1) ? text(s, "RECV_F", m) : text(s - 1, "F", m));
    if (kind == "W") return has(text(s, "I", m));
    if (kind == "SEND_F") return has(text(s, "F", m));
    if (kind == "SEND_B") return has_backward(s, m);
    if (kind == "RECV_F" || kind == "RECV_B") return true;
    if (!has(text(s, "F", m))) return false;
    if (s == stages() - 1) return true;
    return lowered_ && apart(s, s + 1) ? has(text(s, "RECV_B", m)) : has_backward(s + 1, m);
  }

  bool runs() {
    std::vector<std::size_t> next(schedule_.actions.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.ranks(); ++rank) moved = step(rank, next) || moved;
    }
    for (int rank = 0; rank < schedule_.ranks(); ++rank)
      if (next[rank] < schedule_.actions[rank].size()) return false;
    return true;
  }

  bool step(int rank, std::vector<std::size_t>& next) {
    const auto& row = schedule_.actions[rank];
    if (next[rank] == row.size()) return false;
    const Action& action = row[next[rank]];
    if (!data_is_there(action)) return false;
    if (!action.is_compute()) return step_message(rank, action, next);
    if (action.overlaps_next && !data_is_there(row[next[rank] + 1])) return false;
    done_.insert(to_string(action));
    if (action.overlaps_next) done_.insert(to_string(row[next[rank] + 1]));
    next[rank] += action.overlaps_next ? 2 : 1;
    return true;
  }

  // Both sides at once, from the sender's step.
  bool step_message(int rank, const Action& action, std::vector<std::size_t>& next) {
    const std::string kind = to_string(action.kind);
    if (kind.starts_with("RECV")) return false;
    const int other = action.stage + (kind == "SEND_F" ? 1 : -1);
    const int peer = rank_of_[other];
    const std::string receive = text(other, kind == "SEND_F" ? "RECV_F" : "RECV_B", action.microbatch);
    if (next[peer] == schedule_.actions[peer].size() || to_string(schedule_.actions[peer][next[peer]]) != receive)
      return false;
    done_.insert(to_string(action));
    done_.insert(receive);
    ++next[rank];
    ++next[peer];
    return true;
  }

  const Schedule& schedule_;
  std::map<int, int> rank_of_;
  std::map<std::string, int> count_;
  std::set<std::string> done_;
  bool lowered_ = false;
  bool trains_ = false;
};

}  // namespace gantry::schedule::testing
