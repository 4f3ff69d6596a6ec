// Memory that the ranks of one host share, and the ring of rounds that their collectives use.
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

// Shared memory without a name in any file system. It is freed with its last process, however that ends, and
// the size of /dev/shm does not limit it. Pages are allocated when they are first used.
class HostMemory {
 public:
  // The location of the memory for other processes of the host. The inode distinguishes it from another
  // process's file if process numbers differ.
  struct Address {
    std::int64_t process = 0;
    std::int64_t descriptor = -1;
    std::uint64_t device = 0, inode = 0;
    std::int64_t error = 0;  // errno if there is no memory
  };
  // Zeros that other processes can open while the offer exists.
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

  // Returns null if the memory cannot be mapped, with the reason in `error`.
  static std::shared_ptr<HostMemory> open(const Address& address, std::size_t bytes, int& error);
  // Returns the text for an `error` of open() in any process.
  static std::string describe_trouble(const Address& address, std::size_t bytes, int error);
  // Returns memory that only this process uses.
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
  std::uint32_t code = 0;   // a CallCode
  std::int32_t root = 0;    // in a broadcast
  std::int64_t bytes = 0;   // total size of the call
  std::uint64_t parts = 0;  // hash of the sizes of the parts
  std::int64_t rounds = 0;
};

// A ring of rounds in shared memory, in which the collectives of a group's members on one host run.
//
// In each round every member has a slot of slot_bytes() to fill. Collectives take rounds in the order of the
// calls. This order is the same on all members, so the number of a round identifies its use. Each member has
// three counters: the number of rounds that it has filled, summed, and drained (read everything that it needs
// from the other slots). A slot is free for another round when all members have drained the round that used
// it. The first round of a collective has a head, by which the members detect that they called different
// collectives.
//
// Shared between processes: the counters are atomic. Only their member writes them, with release, after the
// data that they announce. Only the member writes its slot and head, from the time at which the round is free
// until `filled`. Within the process everything is guarded by the engine's mutex, except turn numbers: these
// are assigned by the only thread that calls the group.
class HostRing {
 public:
  static constexpr int kDepth = 4;  // maximum number of rounds in flight

  static std::size_t memory_bytes(int members, std::int64_t chunk_bytes);
  HostRing(std::shared_ptr<HostMemory> memory, int members, int me, std::int64_t chunk_bytes);

  int members() const { return members_; }
  int me() const { return me_; }
  // Usable bytes of a slot. A slot has additional space, so that a piece for each member can begin on a cache
  // line.
  std::int64_t chunk_bytes() const { return chunk_bytes_; }
  std::int64_t slot_bytes() const { return slot_bytes_; }

  // A collective's turn comes when all earlier ones have completed their rounds.
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
  // In an all_to_all: the bytes for each member.
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
  std::uint64_t turns_ = 0;        // assigned so far
  std::uint64_t turn_ = 0;         // the current turn
  std::uint64_t first_round_ = 0;  // first round of the current turn
};

}  // namespace gantry
