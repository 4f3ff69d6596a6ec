#include "gantry/comm/mpi/host_ring.h"

namespace gantry {
namespace {

// A piece may begin on a cache line and be cut at one: two lines more each, and as many to spare.
constexpr std::int64_t kSpareBytesAMember = 256;

std::int64_t bytes_of_slot(int members, std::int64_t chunk_bytes) {
  return whole_pages(chunk_bytes + members * kSpareBytesAMember);
}

std::int64_t parts_bytes(int members) {
  return whole_pages(std::int64_t{members} * members * HostRing::kDepth *
                     static_cast<std::int64_t>(sizeof(std::int64_t)));
}

}  // namespace

std::size_t HostRing::memory_bytes(int members, std::int64_t chunk_bytes) {
  return static_cast<std::size_t>(lines_bytes(members) + parts_bytes(members) +
                                  std::int64_t{members} * kDepth * bytes_of_slot(members, chunk_bytes));
}

HostRing::HostRing(std::shared_ptr<HostMemory> memory, int members, int me, std::int64_t chunk_bytes)
    : memory_(std::move(memory)),
      members_(members),
      me_(me),
      chunk_bytes_(chunk_bytes),
      slot_bytes_(bytes_of_slot(members, chunk_bytes)),
      lines_(reinterpret_cast<Line*>(memory_->data())),
      parts_(reinterpret_cast<std::int64_t*>(memory_->data() + lines_bytes(members))),
      slots_(reinterpret_cast<char*>(parts_) + parts_bytes(members)) {}

}  // namespace gantry
