// The messages between this rank and another one, over a nonblocking socket; or from this rank to itself,
// without a socket.
//
// A message is sent in frames. A short one is sent at once (kShort). A longer one is offered first (kOffer).
// The receiver requests it when a receive has been posted (kTake), and reads it directly into the receive's
// memory (kBytes). So only short messages are buffered, and a long one does not block others.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "gantry/comm/processes/transport.h"
#include "gantry/tensors/buffer_pool.h"

namespace gantry {

// The format on the wire; all hosts must have the same byte order.
struct LinkFrame {
  enum Kind : std::uint32_t { kShort = 1, kOffer, kTake, kBytes };
  static constexpr std::int64_t kMostShort = std::int64_t{64} << 10;
  static constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

  std::uint32_t kind = kShort;
  std::int32_t tag = 0;
  std::uint64_t channel = 0;
  std::int64_t bytes = 0;    // length of the message
  std::uint64_t number = 0;  // number of the offer, counted by its sender
};

class PeerLink {
 public:
  using Completions = std::vector<Transport::Completion>;

  // `peer` names the other rank in messages. `descriptor` is closed with this object; -1: messages to itself.
  // Completed requests are appended to `done`.
  PeerLink(int descriptor, std::string peer, Completions& done);
  ~PeerLink();
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  void send(std::uint64_t channel, int tag, const char* data, std::int64_t bytes, int request);
  void receive(std::uint64_t channel, int tag, char* data, std::int64_t bytes, int request);
  bool has_arrived(std::uint64_t channel, int tag) const;

  int descriptor() const { return descriptor_; }
  // read() reads the available data through `block`. write() sends as much as the socket accepts.
  void read(std::vector<char>& block);
  void write();
  bool wants_to_write() const { return sent_ < outgoing_.size() && !is_broken(); }
  bool is_broken() const { return !trouble_.empty(); }
  // For a broken link: fails all requests, after the time in which the control plane may report the reason.
  void fail_late();

 private:
  struct Outgoing {
    LinkFrame frame;
    const char* data = nullptr;
    std::int64_t bytes = 0;
    int request = -1;  // completed when all bytes are sent
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
    const char* own = nullptr;  // a longer message to itself, with its request in the next member
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
  // Returns the first receive that was posted for such a message, or end().
  std::vector<Posted>::iterator find_posted(const LinkFrame& frame);

  const int descriptor_;
  const std::string peer_;
  Completions& done_;

  std::vector<Posted> posted_;     // receives without a message so far
  std::vector<Arrived> arrived_;   // messages without a receive so far
  std::vector<Numbered> offered_;  // messages that the peer has not requested so far
  std::vector<Numbered> awaited_;  // messages that were requested from the peer
  std::uint64_t offers_ = 0;

  std::vector<Outgoing> outgoing_;  // pending from index sent_ on
  std::size_t sent_ = 0;
  std::int64_t sent_bytes_ = 0;  // bytes of the first pending one that are already sent, including its frame

  // The frame that is being read, and the destination of its payload.
  LinkFrame frame_;
  std::size_t frame_bytes_ = 0;
  char* target_ = nullptr;
  std::int64_t left_ = 0;
  int receiving_ = -1;  // request; -1: the payload is stored in kept_
  PooledMemory kept_;

  std::string trouble_;  // why the link is broken
  std::chrono::steady_clock::time_point broken_at_;
};

}  // namespace gantry
