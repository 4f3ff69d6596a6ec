// The authors' heuristics for ZB (Qi et al., arXiv 2401.10241) and ZB-V (arXiv 2405.15362), implemented step
// by step with counters and tables. The tests compare zb_auto and zb_v with them. An activation counts 2; its
// backward and its weight gradient free 1 each.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <stdexcept>
#include <vector>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule::testing {

struct PublishedTimes {
  double forward = 1, input_gradient = 1, weight_gradient = 1, hop = 0;  // per stage
};

// Appends actions one by one to the row of a rank. Kinds are 0 (forward), 1 (input gradient) and 2 (weight
// gradient).
class PublishedHeuristic {
 public:
  PublishedHeuristic(int ranks, int microbatches, PublishedTimes times, int limit, int waiting = 1)
      : p(ranks),
        m(microbatches),
        limit(2 * limit),
        hop(times.hop),
        cost{times.forward, times.input_gradient, times.weight_gradient},
        freed{-2, 2 - waiting, waiting} {}

 protected:
  void clear() {
    clock.assign(p, 0);
    idle.assign(p, 0);
    memory.assign(p, 0);
    rows.assign(p, {});
  }

  // Returns the end of the action.
  double append(int rank, int kind, int stage, int index, double ready) {
    if (index >= m) throw std::logic_error("a microbatch too many");
    static constexpr std::array kinds = {ActionKind::kForward, ActionKind::kInputGradient, ActionKind::kWeightGradient};
    const double start = std::max(clock[rank], ready);
    if (!rows[rank].empty()) idle[rank] += start - clock[rank];
    rows[rank].push_back({kinds[kind], stage, index});
    memory[rank] -= freed[kind];
    return clock[rank] = start + cost[kind];
  }

  double most_idle() const { return std::ranges::max(idle); }

  Schedule schedule(std::vector<std::vector<int>> stages_of_rank) const {
    return {"published", m, std::move(stages_of_rank), rows};
  }

  int p, m, limit;
  double hop;
  std::array<double, 3> cost;
  std::array<int, 3> freed;  // by kind
  std::vector<double> clock, idle;
  std::vector<int> memory;
  std::vector<std::vector<Action>> rows;
};

class PublishedZeroBubble : PublishedHeuristic {
 public:
  using PublishedHeuristic::PublishedHeuristic;

  Schedule make() {
    Schedule best;
    double shortest = -1;
    for (int rule = 7; rule >= 0; --rule) {
      attempt((rule & 4) != 0, (rule & 2) != 0, (rule & 1) != 0);
      double longest = 0;
      for (int j = 0; j < p; ++j) longest = std::max(longest, clock[j] - (ends[0][j][0] - cost[0]));
      if (shortest >= 0 && longest >= shortest) continue;
      shortest = longest;
      std::vector<std::vector<int>> stages;
      for (int j = 0; j < p; ++j) stages.push_back({j});
      best = schedule(stages);
    }
    return best;
  }

 private:
  void attempt(bool short_lead, bool prefers_backward, bool fills) {
    clear();
    for (auto& kind : ends) kind.assign(p, {});
    lead(short_lead);
    for (int i = 1; i < m; ++i) {
      forwards(prefers_backward, fills);
      for (int j = p - 1; j >= 0; --j) {
        if (j + 1 < p) fill(j, ends[1][j + 1][i] + hop, fills);
        while (j == 0 && count(0, 0) == m && count(2, 0) < count(1, 0)) put(0, 2);
        put(j, 1);
      }
    }
    for (int j = 0; j < p; ++j)
      while (count(2, j) < m) put(j, 2);
  }

  int count(int kind, int j) const { return static_cast<int>(ends[kind][j].size()); }

  void put(int j, int kind) {
    const int i = count(kind, j);
    double ready = 0;
    if (kind == 0 && j > 0) ready = ends[0][j - 1].at(i) + hop;
    if (kind == 1 && j + 1 < p) ready = ends[1][j + 1].at(i) + hop;
    ends[kind][j].push_back(append(j, kind, j, i, ready));
  }

  void fill(int j, double ready, bool fills) {
    while (count(2, j) < count(1, j) && clock[j] + cost[2] <= ready) put(j, 2);
    const bool longest = ready - clock[j] > most_idle() - idle[j];
    if (count(2, j) < count(1, j) && clock[j] < ready && (longest || fills)) put(j, 2);
  }

  void lead(bool is_short) {
    for (int j = 0; j < p; ++j) put(j, 0);
    std::vector<int> more(p, 0);
    double gradient = clock[p - 1] + cost[1];
    for (int j = p - 2; j >= 0; --j) {
      double end = clock[j];
      while (1 + more[j] < m && 2 * (more[j] + 2) <= limit &&
             (is_short ? end + cost[0] <= gradient + hop : end < gradient + hop))
        end += cost[0], ++more[j];
      gradient = std::max(end, gradient + hop) + cost[1];
    }
    for (int j = 1; j < p; ++j)
      while (more[j] > 0 && more[j] >= more[j - 1] && 1 + more[j] < m) --more[j];
    for (int j = 0; j < p; ++j)
      for (int k = 0; k < more[j]; ++k) put(j, 0);
    for (int j = p - 1; j >= 0; --j) put(j, 1);
  }

  bool wants_forward(int j, bool prefers_backward) const {
    if (count(0, j) == m) return false;
    if (!prefers_backward || j + 1 == p || count(0, j) < count(0, j + 1) + 2) return true;
    const double gradient = clock[j + 1] + cost[0] + cost[1] + hop;
    if (clock[j] >= gradient) return false;
    int weights = 0;
    while (memory[j] + 2 - weights * freed[2] > limit && count(2, j) + weights < count(1, j)) ++weights;
    if (clock[j] + cost[0] + weights * cost[2] <= gradient) return true;
    return gradient - clock[j] > most_idle() - idle[j];
  }

  void forwards(bool prefers_backward, bool fills) {
    std::vector<char> wanted(p);
    for (int j = 0; j < p; ++j) wanted[j] = wants_forward(j, prefers_backward);
    for (int j = p - 2; j >= 0; --j) wanted[j] = wanted[j] && wanted[j + 1];
    for (int j = 0; j < p; ++j) {
      if (!wanted[j]) continue;
      while (memory[j] + 2 > limit) {
        if (count(2, j) == count(1, j)) throw std::logic_error("no room");
        put(j, 2);
      }
      if (j > 0) fill(j, ends[0][j - 1].at(count(0, j)) + hop, fills);
      put(j, 0);
    }
  }

  std::array<std::vector<std::vector<double>>, 3> ends;  // by kind, rank and microbatch
};

// Legs are numbered as in published_blocks.h.
class PublishedZeroBubbleV : PublishedHeuristic {
 public:
  using PublishedHeuristic::PublishedHeuristic;

  Schedule make() {
    std::vector<std::vector<int>> stages;
    for (int r = 0; r < p; ++r) stages.push_back({r, 2 * p - 1 - r});
    Schedule best;
    double least = -1;
    for (const bool fill_backwards : {true, false})
      for (const bool fill_forwards : {true, false}) {
        allowed.clear();
        double before = -1;
        for (;;) {
          attempt(fill_forwards, fill_backwards);
          if (before >= 0 && most_idle() >= before) break;
          before = most_idle();
          if (least < 0 || before < least) least = before, best = schedule(stages);
          allowed = idle;
        }
      }
    return best;
  }

 private:
  int count(int leg, int r) const { return static_cast<int>(ends[leg][r].size()); }
  static int before(int leg, int r) { return leg % 2 == 0 ? r - 1 : r + 1; }
  bool comes(int leg, int r) const { return before(leg, r) >= 0 && before(leg, r) < p; }
  bool is_there(int leg, int r) const { return count(leg, before(leg, r)) > count(leg, r); }

  void put(int leg, int r) {
    const int i = count(leg, r), stage = leg == 0 || leg == 3 ? r : 2 * p - 1 - r;
    ends[leg][r].push_back(append(r, leg / 2, stage, i, comes(leg, r) ? ends[leg][before(leg, r)].at(i) + hop : 0));
    if (leg >= 2) waiting[r].push_back({stage, i});
  }

  void put_weight(int r) {
    const auto [stage, i] = waiting[r].front();
    waiting[r].pop_front();
    append(r, 2, stage, i, 0);
  }

  void fill(int leg, int r, bool small) {
    if (!comes(leg, r)) return;
    const double ready = ends[leg][before(leg, r)].at(count(leg, r)) + hop;
    while (!waiting[r].empty() && ready >= clock[r] + cost[2]) put_weight(r);
    const double most = std::max(most_idle(), allowed.empty() ? 0 : std::ranges::max(allowed) - allowed[r]);
    if (!waiting[r].empty() && small && ready - clock[r] > most - idle[r]) put_weight(r);
  }

  void ramp_up() {
    for (int r = 0; r < p; ++r) put(0, r);
    for (int r = p - 1; r >= 0; --r) {
      while (r + 1 < p && memory[r] + 4 * (r + 1) <= limit && clock[r] + cost[0] <= ends[1][r + 1][0] + hop &&
             count(0, r) < m)
        for (int j = 0; j <= r; ++j) put(0, j);
      put(1, r);
    }
    int leg = 0;
    for (int r = 1; r < p; ++r) {
      while (count(0, r) + count(1, r) < count(0, r - 1) + count(1, r - 1) ||
             (count(1, r) <= count(1, r - 1) && count(1, r - 1) < m)) {
        for (int j = p - 1; j >= r; --j)
          if (count(leg, j) < m) put(leg, j);
        leg = 1 - leg;
      }
    }
  }

  void attempt(bool fill_forwards, bool fill_backwards) {
    clear();
    for (auto& leg : ends) leg.assign(p, {});
    waiting.assign(p, {});
    ramp_up();
    for (int round = 0; round < 2 * m; ++round) {
      std::vector<char> up(p);
      for (int r = 0; r < p; ++r)
        up[r] = count(3, r) < count(2, r) && (r == p - 1 || is_there(3, r) || count(2, r) == m);
      for (int r = p - 1; r >= 0; --r)
        if (up[r]) fill(3, r, true), put(3, r);
      for (int r = 0; r < p; ++r)
        if (!up[r]) fill(2, r, fill_backwards), put(2, r);
      for (int r = 0; r < p; ++r) forward(r, fill_forwards);
    }
    for (int r = 0; r < p; ++r)
      while (!waiting[r].empty()) put_weight(r);
  }

  void forward(int r, bool fills) {
    if (count(1, r) == m) return;
    int leg = 0;
    if (count(1, r) < count(0, r)) {
      if (r == p - 1 || is_there(1, r))
        leg = 1;
      else if (count(0, r) == m || (r > 0 && !is_there(0, r)))
        return;
    }
    while (memory[r] + 2 > limit) put_weight(r);
    fill(leg, r, fills);
    put(leg, r);
  }

  std::array<std::vector<std::vector<double>>, 4> ends;  // by leg, rank and microbatch
  std::vector<std::deque<std::pair<int, int>>> waiting;  // stage and microbatch of weight gradients
  std::vector<double> allowed;                           // idle times of the previous attempt
};

}  // namespace gantry::schedule::testing
