#include "gantry/comm/mpi/collective_plans.h"

#include <algorithm>
#include <cstring>

namespace gantry {
namespace {

// Everyone-to-everyone costs messages by the square of the ranks.
constexpr int kMostDirectRanks = 16;

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

Range part(std::int64_t length, std::int64_t index, std::int64_t parts) {
  return {length * index / parts, length * (index + 1) / parts};
}

std::int64_t segments_of(std::int64_t bytes, std::int64_t segment_bytes) {
  return std::max<std::int64_t>(1, (bytes + segment_bytes - 1) / segment_bytes);
}

// Every rank's slice of `data`, cut into the same number of segments.
struct Slices {
  char* data;
  std::int64_t item;
  const std::vector<std::int64_t>& elements;
  const std::vector<std::int64_t>& offsets;
  std::int64_t segments;

  Range range(int rank, std::int64_t segment) const {
    const Range within = part(elements[rank], segment, segments);
    return {offsets[rank] + within.begin, offsets[rank] + within.end};
  }
  char* at(std::int64_t element) const { return data + element * item; }
};

// Each rank gets every member's piece of its slice and sums them to `out`. The scratch holds one piece a peer.
void add_scatter(Plan& plan, const Member& me, const Slices& in, std::int64_t segment, char* out, char* scratch) {
  const Range mine = in.range(me.rank, segment);
  plan.begin_sum(out, mine.size());
  for (int peer = 0; peer < me.size; ++peer) {
    if (peer == me.rank) {
      plan.add_input(in.at(mine.begin));
      continue;
    }
    const Range theirs = in.range(peer, segment);
    plan.receive({peer, scratch, mine.size() * in.item});
    plan.send({peer, in.at(theirs.begin), theirs.size() * in.item});
    plan.add_input(scratch);
    scratch += mine.size() * in.item;
  }
}

void add_gather(Plan& plan, const Member& me, const Slices& data, std::int64_t segment) {
  const Range mine = data.range(me.rank, segment);
  for (int peer = 0; peer < me.size; ++peer) {
    if (peer == me.rank) continue;
    const Range theirs = data.range(peer, segment);
    plan.receive({peer, data.at(theirs.begin), theirs.size() * data.item});
    plan.send({peer, data.at(mine.begin), mine.size() * data.item});
  }
}

// The largest piece of this rank's slice, once for each peer.
char* scratch_for(Plan& plan, const Member& me, const Slices& slices) {
  const std::int64_t piece = (slices.elements[me.rank] + slices.segments - 1) / slices.segments;
  return plan.take_scratch(piece * slices.item * (me.size - 1));
}

void plan_direct(Plan& plan, const Member& me, char* data, std::int64_t elements, std::int64_t item) {
  char* place = plan.take_scratch(elements * item * (me.size - 1));
  plan.begin_sum(data, elements);
  for (int peer = 0; peer < me.size; ++peer) {
    if (peer == me.rank) {
      plan.add_input(data);
      continue;
    }
    plan.receive({peer, place, elements * item});
    plan.send({peer, data, elements * item});
    plan.add_input(place);
    place += elements * item;
  }
  plan.end_phase();
}

void copy_own(char* out, const char* in, std::int64_t bytes) {
  if (bytes > 0 && out != in) std::memmove(out, in, static_cast<std::size_t>(bytes));
}

}  // namespace

void Plan::clear() {
  receives_.clear();
  sends_.clear();
  reductions_.clear();
  inputs_.clear();
  ends_.clear();
  scratch_ = {};
}

char* Plan::take_scratch(std::int64_t bytes) {
  scratch_ = BufferPool::instance().take(static_cast<std::size_t>(bytes));
  return scratch_.get();
}

const std::vector<std::int64_t>& Plan::offsets_of(const std::vector<std::int64_t>& lengths, int which) {
  auto& offsets = offsets_[which];
  offsets.assign(1, 0);
  for (const std::int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

void plan_all_reduce(Plan& plan, const Member& me, char* data, std::int64_t elements, std::int64_t item,
                     std::vector<std::int64_t>& slice_elements) {
  if (me.size == 1) return;
  const std::int64_t bytes = elements * item;
  if (bytes <= me.direct_bytes && me.size <= kMostDirectRanks) return plan_direct(plan, me, data, elements, item);
  slice_elements.clear();
  for (int rank = 0; rank < me.size; ++rank) slice_elements.push_back(part(elements, rank, me.size).size());
  const Slices slices{data, item, slice_elements, plan.offsets_of(slice_elements),
                      segments_of(bytes, me.segment_bytes)};
  char* const scratch = scratch_for(plan, me, slices);
  for (std::int64_t segment = 0; segment <= slices.segments; ++segment) {
    if (segment < slices.segments)
      add_scatter(plan, me, slices, segment, slices.at(slices.range(me.rank, segment).begin), scratch);
    if (segment > 0) add_gather(plan, me, slices, segment - 1);
    plan.end_phase();
  }
}

void plan_reduce_scatter(Plan& plan, const Member& me, char* out, char* in, const std::vector<std::int64_t>& elements,
                         std::int64_t item) {
  if (me.size == 1) return copy_own(out, in, elements[0] * item);
  const auto& offsets = plan.offsets_of(elements);
  const Slices slices{in, item, elements, offsets, segments_of(offsets.back() * item, me.segment_bytes)};
  char* const scratch = scratch_for(plan, me, slices);
  for (std::int64_t segment = 0; segment < slices.segments; ++segment) {
    char* sum = out + part(elements[me.rank], segment, slices.segments).begin * item;
    add_scatter(plan, me, slices, segment, sum, scratch);
    plan.end_phase();
  }
}

void plan_all_gather(Plan& plan, const Member& me, char* out, char* in, const std::vector<std::int64_t>& elements,
                     std::int64_t item) {
  const auto& offsets = plan.offsets_of(elements);
  copy_own(out + offsets[me.rank] * item, in, elements[me.rank] * item);
  for (int peer = 0; peer < me.size; ++peer) {
    if (peer == me.rank) continue;
    plan.receive({peer, out + offsets[peer] * item, elements[peer] * item});
    plan.send({peer, in, elements[me.rank] * item});
  }
  plan.end_phase();
}

void plan_all_to_all(Plan& plan, const Member& me, char* out, char* in, const std::vector<std::int64_t>& out_elements,
                     const std::vector<std::int64_t>& in_elements, std::int64_t item) {
  const auto &out_offsets = plan.offsets_of(out_elements, 0), &in_offsets = plan.offsets_of(in_elements, 1);
  copy_own(out + out_offsets[me.rank] * item, in + in_offsets[me.rank] * item, in_elements[me.rank] * item);
  for (int peer = 0; peer < me.size; ++peer) {
    if (peer == me.rank) continue;
    plan.receive({peer, out + out_offsets[peer] * item, out_elements[peer] * item});
    plan.send({peer, in + in_offsets[peer] * item, in_elements[peer] * item});
  }
  plan.end_phase();
}

void plan_broadcast(Plan& plan, const Member& me, char* data, std::int64_t bytes, int root) {
  const int place = (me.rank - root + me.size) % me.size;  // in the tree, the root at 0
  int reach = 1;                                           // children are at place + reach / 2, place + reach / 4, ...
  while (reach < me.size && !(place & reach)) reach *= 2;
  const int parent = place == 0 ? -1 : (place - reach + root) % me.size;

  const std::int64_t segments = me.size > 2 ? segments_of(bytes, me.segment_bytes) : 1;
  for (std::int64_t segment = 0; segment <= segments; ++segment) {
    const Range now = part(bytes, segment, segments);
    if (parent >= 0 && segment < segments) plan.receive({parent, data + now.begin, now.size()});
    if (segment > 0) {
      const Range before = part(bytes, segment - 1, segments);
      for (int step = reach / 2; step > 0; step /= 2)
        if (place + step < me.size) plan.send({(place + step + root) % me.size, data + before.begin, before.size()});
    }
    plan.end_phase();
  }
}

void plan_barrier(Plan& plan, const Member& me) {
  for (int step = 1; step < me.size; step *= 2) {
    plan.receive({(me.rank - step + me.size) % me.size, nullptr, 0});
    plan.send({(me.rank + step) % me.size, nullptr, 0});
    plan.end_phase();
  }
}

}  // namespace gantry
