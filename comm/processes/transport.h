// The transport of messages between the processes of a job: MPI or sockets.
//
// A channel joins some ranks of the job. Messages between two of them with the same channel and tag keep
// their order. Peers are given as indices among the channel's members. Only gather() and open_channel() wait;
// all other calls are guarded by the engine's mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gantry {

class Transport {
 public:
  class Channel {
   public:
    virtual ~Channel() = default;
  };
  // The completion of a posted send or receive.
  struct Completion {
    int request = 0;         // number from the call of send() or receive()
    std::int64_t bytes = 0;  // received
    bool too_long = false;   // the message is longer than the receive's memory
    std::string trouble;     // why it failed; "" if it did not
  };

  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int largest_tag() const = 0;

  // Gathers a text from each rank, in rank order, during set-up. All texts have the same length, at most
  // 4,000 bytes. Collective over the job. `waited`, here and below, is the error if a rank does not arrive.
  virtual std::vector<std::string> gather(const std::string& mine, const std::string& waited) = 0;
  // Collective over `ranks`. `number` is the same on all of them, and differs from those of their other
  // channels.
  virtual std::unique_ptr<Channel> open_channel(const std::vector<int>& ranks, std::uint64_t number,
                                                const std::string& waited) = 0;

  // The transport uses the memory until the request is completed. At most 2^30 bytes.
  virtual void send(Channel& channel, int peer, int tag, const void* data, std::int64_t bytes, int request) = 0;
  virtual void receive(Channel& channel, int peer, int tag, void* data, std::int64_t bytes, int request) = 0;
  // Advances all requests, and appends the completed ones to `done`.
  virtual void test_some(std::vector<Completion>& done) = 0;
  // Returns the ranks whose connection is known to have ended.
  virtual std::vector<int> lost_ranks() const { return {}; }
  // Returns true if a message has arrived for which no receive was posted.
  virtual bool probe(Channel& channel, int peer, int tag) = 0;
  // Drops all requests and connections, for a rank that leaves its job; only the destructor may be called
  // afterwards. Returns false, without a change, if the transport may still use the memory of the requests.
  virtual bool abandon() { return false; }
};

}  // namespace gantry
