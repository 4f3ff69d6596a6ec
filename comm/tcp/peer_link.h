// The messages between this rank and one other, over a socket that never blocks; or of this rank to itself, without
// one.
//
// A message travels in frames. A short one is sent at once (kShort). A longer one is offered first (kOffer); the
// receiver asks for it when a receive has been posted (kTake), and reads it directly into its place (kBytes). So only
// short messages are buffered, and a long one does not block others.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "gantry/comm/processes/transport.h"
#include "gantry/tensors/buffer_pool.h"

namespace gantry {

// As it travels, by hosts of one byte order.
struct LinkFrame {
  enum Kind : std::uint32_t { kShort = 1, kOffer, kTake, kBytes };
  static constexpr std::int64_t kMostShort = std::int64_t{64} << 10;
  static constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

  std::uint32_t kind = kShort;
  std::int32_t tag = 0;
  std::uint64_t channel = 0;
  std::int64_t bytes = 0;    // length of the message
  std::uint64_t number = 0;  // counts the sender's offers
};

class PeerLink {
 public:
  using Completions = std::vector<Transport::Completion>;

  // `peer` names the other rank in messages. `descriptor` is closed with this; -1: to itself. Completed requests go
  // to `done`.
  PeerLink(int descriptor, std::string peer, Completions& done);
  ~PeerLink();
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  void send(std::uint64_t channel, int tag, const char* data, std::int64_t bytes, int request);
  void receive(std::uint64_t channel, int tag, char* data, std::int64_t bytes, int request);
  bool has_arrived(std::uint64_t channel, int tag) const;

  int descriptor() const { return descriptor_; }
  // Takes what has come, by way of `block`; sends what the socket takes.
  void read(std::vector<char>& block);
  void write();
  bool wants_to_write() const { return sent_ < outgoing_.size() && !is_broken(); }
  bool is_broken() const { return !trouble_.empty(); }
  // For a broken link: fails all requests, after the time in which the control plane may say why.
  void fail_late();

 private:
  struct Outgoing {
    LinkFrame frame;
    const char* data = nullptr;
    std::int64_t bytes = 0;
    int request = -1;  // completed when it has left
  };
  struct Posted {
    std::uint64_t channel = 0;
    int tag = 0;
    char* data = nullptr;
    std::int64_t bytes = 0;
    int request = -1;
  };
  struct Arrived {
    LinkFrame frame;
    PooledMemory copy;          // a short message
    const char* own = nullptr;  // a longer message to itself, with the next
    int own_request = -1;
  };
  struct Numbered {
    std::uint64_t number = 0;
    char* data = nullptr;
    std::int64_t bytes = 0;
    int request = -1;
  };

  void complete(int request, std::int64_t bytes);
  void queue(const Outgoing& outgoing);
  void deliver(Arrived arrived);
  void hand_over(const Posted& posted, Arrived& arrived);
  void consume(const char* bytes, std::size_t count);
  void advance_payload(std::int64_t bytes);
  void begin_frame();
  void begin_short();
  void end_payload();
  void take_offer();
  void begin_bytes();
  void break_off(const std::string& trouble);
  // The first that was posted for such a message; end() without.
  std::vector<Posted>::iterator find_posted(const LinkFrame& frame);

  const int descriptor_;
  const std::string peer_;
  Completions& done_;

  std::vector<Posted> posted_;     // no message has come for them
  std::vector<Arrived> arrived_;   // no receive was posted for them
  std::vector<Numbered> offered_;  // the other one has not asked for them
  std::vector<Numbered> awaited_;  // that were asked for
  std::uint64_t offers_ = 0;

  std::vector<Outgoing> outgoing_;  // from sent_ on
  std::size_t sent_ = 0;
  std::int64_t sent_bytes_ = 0;  // bytes of the first that have left, with its frame

  // The frame that is being read, and where its payload goes.
  LinkFrame frame_;
  std::size_t frame_bytes_ = 0;
  char* target_ = nullptr;
  std::int64_t left_ = 0;
  int receiving_ = -1;  // request; -1: the payload is kept in kept_
  PooledMemory kept_;

  std::string trouble_;  // why the link is broken
  std::chrono::steady_clock::time_point broken_at_;
};

}  // namespace gantry
