#include "gantry/comm/mpi/collective_plans.h"

#include <algorithm>
#include <cstring>

#include "gantry/comm/mpi/buffer_pool.h"

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

std::vector<std::int64_t> offsets_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> offsets{0};
  for (const std::int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

// Every rank's slice of `data`, cut into the same number of segments.
struct Slices {
  char* data;
  std::int64_t item;
  std::vector<std::int64_t> elements;
  std::vector<std::int64_t> offsets;
  std::int64_t segments;

  Range range(int rank, std::int64_t segment) const {
    const Range within = part(elements[rank], segment, segments);
    return {offsets[rank] + within.begin, offsets[rank] + within.end};
  }
  char* at(std::int64_t element) const { return data + element * item; }
};

// Each rank gets every member's piece of its slice and sums them to `out`. The scratch holds one piece a peer.
void add_scatter(const Member& me, Phase& phase, const Slices& in, std::int64_t segment, char* out, char* scratch) {
  const Range mine = in.range(me.rank, segment);
  Reduction sum{out, {}, mine.size()};
  for (int peer = 0; peer < me.size; ++peer) {
    if (peer == me.rank) {
      sum.inputs.push_back(in.at(mine.begin));
      continue;
    }
    const Range theirs = in.range(peer, segment);
    phase.receives.push_back({peer, scratch, mine.size() * in.item});
    phase.sends.push_back({peer, in.at(theirs.begin), theirs.size() * in.item});
    sum.inputs.push_back(scratch);
    scratch += mine.size() * in.item;
  }
  phase.reductions.push_back(std::move(sum));
}

void add_gather(const Member& me, Phase& phase, const Slices& data, std::int64_t segment) {
  const Range mine = data.range(me.rank, segment);
  for (int peer = 0; peer < me.size; ++peer) {
    if (peer == me.rank) continue;
    const Range theirs = data.range(peer, segment);
    phase.receives.push_back({peer, data.at(theirs.begin), theirs.size() * data.item});
    phase.sends.push_back({peer, data.at(mine.begin), mine.size() * data.item});
  }
}

// The largest piece of this rank's slice, once for each peer.
std::shared_ptr<char> scratch_for(const Member& me, const Slices& slices) {
  const std::int64_t piece = (slices.elements[me.rank] + slices.segments - 1) / slices.segments;
  return BufferPool::instance().take(piece * slices.item * (me.size - 1));
}

Plan plan_direct(const Member& me, char* data, std::int64_t elements, std::int64_t item) {
  Plan plan{{}, BufferPool::instance().take(elements * item * (me.size - 1))};
  Phase& phase = plan.phases.emplace_back();
  Reduction sum{data, {}, elements};
  char* place = plan.scratch.get();
  for (int peer = 0; peer < me.size; ++peer) {
    if (peer == me.rank) {
      sum.inputs.push_back(data);
      continue;
    }
    phase.receives.push_back({peer, place, elements * item});
    phase.sends.push_back({peer, data, elements * item});
    sum.inputs.push_back(place);
    place += elements * item;
  }
  phase.reductions.push_back(std::move(sum));
  return plan;
}

void copy_own(char* out, const char* in, std::int64_t bytes) {
  if (bytes > 0 && out != in) std::memmove(out, in, static_cast<std::size_t>(bytes));
}

}  // namespace

Plan plan_all_reduce(const Member& me, char* data, std::int64_t elements, std::int64_t item) {
  if (me.size == 1) return {};
  const std::int64_t bytes = elements * item;
  if (bytes <= me.direct_bytes && me.size <= kMostDirectRanks) return plan_direct(me, data, elements, item);
  Slices slices{data, item, {}, {}, segments_of(bytes, me.segment_bytes)};
  for (int rank = 0; rank < me.size; ++rank) slices.elements.push_back(part(elements, rank, me.size).size());
  slices.offsets = offsets_of(slices.elements);
  Plan plan{{}, scratch_for(me, slices)};
  for (std::int64_t segment = 0; segment <= slices.segments; ++segment) {
    Phase& phase = plan.phases.emplace_back();
    if (segment < slices.segments)
      add_scatter(me, phase, slices, segment, slices.at(slices.range(me.rank, segment).begin), plan.scratch.get());
    if (segment > 0) add_gather(me, phase, slices, segment - 1);
  }
  return plan;
}

Plan plan_reduce_scatter(const Member& me, char* out, char* in, const std::vector<std::int64_t>& elements,
                         std::int64_t item) {
  Slices slices{in, item, elements, offsets_of(elements), 1};
  if (me.size == 1) {
    copy_own(out, in, elements[0] * item);
    return {};
  }
  slices.segments = segments_of(slices.offsets.back() * item, me.segment_bytes);
  Plan plan{{}, scratch_for(me, slices)};
  for (std::int64_t segment = 0; segment < slices.segments; ++segment) {
    char* sum = out + part(elements[me.rank], segment, slices.segments).begin * item;
    add_scatter(me, plan.phases.emplace_back(), slices, segment, sum, plan.scratch.get());
  }
  return plan;
}

Plan plan_all_gather(const Member& me, char* out, char* in, const std::vector<std::int64_t>& bytes) {
  const auto offsets = offsets_of(bytes);
  copy_own(out + offsets[me.rank], in, bytes[me.rank]);
  Plan plan;
  Phase& phase = plan.phases.emplace_back();
  for (int peer = 0; peer < me.size; ++peer) {
    if (peer == me.rank) continue;
    phase.receives.push_back({peer, out + offsets[peer], bytes[peer]});
    phase.sends.push_back({peer, in, bytes[me.rank]});
  }
  return plan;
}

Plan plan_all_to_all(const Member& me, char* out, char* in, const std::vector<std::int64_t>& out_bytes,
                     const std::vector<std::int64_t>& in_bytes) {
  const auto out_offsets = offsets_of(out_bytes), in_offsets = offsets_of(in_bytes);
  copy_own(out + out_offsets[me.rank], in + in_offsets[me.rank], in_bytes[me.rank]);
  Plan plan;
  Phase& phase = plan.phases.emplace_back();
  for (int peer = 0; peer < me.size; ++peer) {
    if (peer == me.rank) continue;
    phase.receives.push_back({peer, out + out_offsets[peer], out_bytes[peer]});
    phase.sends.push_back({peer, in + in_offsets[peer], in_bytes[peer]});
  }
  return plan;
}

Plan plan_broadcast(const Member& me, char* data, std::int64_t bytes, int root) {
  Plan plan;
  const int place = (me.rank - root + me.size) % me.size;  // in the tree, the root at 0
  int parent = -1;
  int reach = 1;  // children are at place + reach / 2, place + reach / 4, ...
  while (reach < me.size && !(place & reach)) reach *= 2;
  if (place != 0) parent = (place - reach + root) % me.size;
  std::vector<int> children;
  for (int step = reach / 2; step > 0; step /= 2)
    if (place + step < me.size) children.push_back((place + step + root) % me.size);

  const std::int64_t segments = me.size > 2 ? segments_of(bytes, me.segment_bytes) : 1;
  for (std::int64_t segment = 0; segment <= segments; ++segment) {
    Phase& phase = plan.phases.emplace_back();
    const Range now = part(bytes, segment, segments);
    if (parent >= 0 && segment < segments) phase.receives.push_back({parent, data + now.begin, now.size()});
    if (segment == 0) continue;
    const Range before = part(bytes, segment - 1, segments);
    for (const int child : children) phase.sends.push_back({child, data + before.begin, before.size()});
  }
  return plan;
}

Plan plan_barrier(const Member& me) {
  Plan plan;
  for (int step = 1; step < me.size; step *= 2) {
    Phase& phase = plan.phases.emplace_back();
    phase.receives.push_back({(me.rank - step + me.size) % me.size, nullptr, 0});
    phase.sends.push_back({(me.rank + step) % me.size, nullptr, 0});
  }
  return plan;
}

}  // namespace gantry
