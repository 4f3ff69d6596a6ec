// Memory that the ranks of one host share, and the ring of rounds in which their collectives meet.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace gantry {

inline constexpr std::int64_t kPageBytes = 4096;
inline std::int64_t whole_pages(std::int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Has no name in any file system: it is gone with its last process, however that ends, and /dev/shm's size does not
// limit it. Pages take memory when they are first touched.
class HostMemory {
 public:
  // Where another process of the host finds it. The inode tells it from another process's file where process numbers
  // differ.
  struct Address {
    std::int64_t process = 0;
    std::int64_t descriptor = -1;
    std::uint64_t device = 0, inode = 0;
    std::int64_t error = 0;  // why there is none
  };
  // Zeros, that other processes may open while this lives.
  class Offer {
   public:
    Offer() = default;
    explicit Offer(std::size_t bytes);
    ~Offer();
    Offer(const Offer&) = delete;
    Offer& operator=(Offer&& other) noexcept {
      std::swap(address_, other.address_);
      return *this;
    }
    const Address& address() const { return address_; }

   private:
    Address address_;
  };

  // Null where it can't be mapped; `error` then says why.
  static std::shared_ptr<HostMemory> open(const Address& address, std::size_t bytes, int& error);
  // In words, `error` of open(), by whichever process.
  static std::string describe_trouble(const Address& address, std::size_t bytes, int error);
  // Of this process alone.
  static std::shared_ptr<HostMemory> own(std::size_t bytes);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  char* data() const { return data_; }

 private:
  HostMemory(char* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  char* data_;
  std::size_t bytes_;
};

struct RoundHead {
  std::uint32_t code = 0;   // CallCode
  std::int32_t root = 0;    // of a broadcast
  std::int64_t bytes = 0;   // of the whole
  std::uint64_t parts = 0;  // hash of the parts' sizes
  std::int64_t rounds = 0;
};

// Where the collectives of a group's members on one host meet: a ring of rounds in shared memory.
//
// In each round every member has a slot of some bytes to fill. Collectives take rounds in the order in which they were
// called, which is the same on all members, so a round's number says what it is for. A member's three counters say how
// many rounds it has filled, summed and drained (read all it wants of others' slots); a slot is free for another round
// when all members have drained the one that had it. The first round of a collective carries a head, by which members
// that called different things find out.
//
// Shared between processes: counters are atomic and written by their member alone, with release after what they tell
// of. A slot and its head are written by their member between the round's being free and its `filled`. Within the
// process everything here is guarded by the engine's mutex, but turn numbers are given by the group's one caller.
class HostRing {
 public:
  static constexpr int kDepth = 4;  // rounds under way

  static std::size_t memory_bytes(int members, std::int64_t chunk_bytes);
  HostRing(std::shared_ptr<HostMemory> memory, int members, int me, std::int64_t chunk_bytes);

  int members() const { return members_; }
  int me() const { return me_; }
  // What a slot holds: some more than asked for, so that a piece for each member may begin on a cache line.
  std::int64_t chunk_bytes() const { return chunk_bytes_; }
  std::int64_t slot_bytes() const { return slot_bytes_; }

  // A collective's turn comes when those called before it are through with their rounds.
  void join() { mine().joined.store(++turns_, std::memory_order_release); }
  std::uint64_t turns() const { return turns_; }
  bool joined(int member, std::uint64_t turn) const { return line(member).joined.load() > turn; }
  bool my_turn(std::uint64_t turn) const { return turn == turn_; }
  std::uint64_t first_round() const { return first_round_; }
  void end_turn(std::int64_t rounds) {
    ++turn_;
    first_round_ += rounds;
  }

  char* slot(int member, std::uint64_t round) const {
    return slots_ + (std::int64_t{member} * kDepth + static_cast<std::int64_t>(round % kDepth)) * slot_bytes_;
  }
  RoundHead& head(int member, std::uint64_t round) const { return line(member).heads[round % kDepth]; }
  // Of an all_to_all: bytes for each member.
  std::int64_t* part_bytes(int member, std::uint64_t round) const {
    return parts_ + (std::int64_t{member} * kDepth + static_cast<std::int64_t>(round % kDepth)) * members_;
  }

  bool is_free(std::uint64_t round) const { return round < kDepth || all(&Line::drained, round - kDepth); }
  bool all_filled(std::uint64_t round) const { return all(&Line::filled, round); }
  bool all_summed(std::uint64_t round) const { return all(&Line::summed, round); }
  bool filled(int member, std::uint64_t round) const { return line(member).filled.load() > round; }
  void set_filled(std::uint64_t round) { mine().filled.store(round + 1, std::memory_order_release); }
  void set_summed(std::uint64_t round) { mine().summed.store(round + 1, std::memory_order_release); }
  void set_drained(std::uint64_t round) { mine().drained.store(round + 1, std::memory_order_release); }

 private:
  using Counter = std::atomic<std::uint64_t>;
  struct alignas(64) Line {
    Counter filled, summed, drained, joined;
    alignas(64) RoundHead heads[kDepth];
  };

  static std::int64_t lines_bytes(int members) {
    return whole_pages(members * static_cast<std::int64_t>(sizeof(Line)));
  }
  Line& line(int member) const { return lines_[member]; }
  Line& mine() { return lines_[me_]; }
  bool all(Counter Line::*counter, std::uint64_t round) const {
    for (int member = 0; member < members_; ++member)
      if ((lines_[member].*counter).load(std::memory_order_acquire) <= round) return false;
    return true;
  }

  std::shared_ptr<HostMemory> memory_;
  int members_, me_;
  std::int64_t chunk_bytes_, slot_bytes_;
  Line* lines_;
  std::int64_t* parts_;
  char* slots_;
  std::uint64_t turns_ = 0;        // given
  std::uint64_t turn_ = 0;         // whose it is
  std::uint64_t first_round_ = 0;  // of that turn
};

}  // namespace gantry
