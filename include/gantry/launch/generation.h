// The generations of an elastic job: the times in which its ranks stay the same.
//
// After a loss, and when replicas join, the body of launch() ends on each remaining rank by a PeerError, and runs again
// with the world of the next generation. Ranks keep state over that by carry().
#pragma once

#include <any>
#include <string>
#include <vector>

namespace gantry {

class Generation {
 public:
  virtual ~Generation() = default;
  // 0 for the ranks with which the job started.
  virtual int number() const = 0;
  // True if another generation is about to begin.
  virtual bool has_ended() const = 0;
  // True if a lost replica was started again and waits to join.
  virtual bool replica_waits() const = 0;
  // Ends this generation, so that waiting replicas join: throws PeerError. Collective over the world.
  [[noreturn]] virtual void grow() = 0;
  // After an error: waits until the ranks of the next generation have met, and gathers a text from each, by their ranks
  // in it. Returns false if the job does not continue. At most 4,000 bytes.
  virtual bool agree(const std::string& mine) = 0;
  // The texts of the last agree(): in a body, those with which its generation began. Empty in generation 0.
  virtual const std::vector<std::string>& reports() const = 0;
  // The report of a rank that has joined the job and has carried nothing yet.
  static constexpr const char* kJoinsReport = "joins";
  // This rank's place in reports(), and the replica of each.
  virtual int place_in_reports() const = 0;
  virtual std::vector<int> replicas_in_reports() const = 0;
  // Keeps `state` for the body of the next generation, and `report` for agree() should that body not come to call it.
  virtual void carry(std::any state, std::string report) = 0;
  // Returns what was carried. Empty without it.
  virtual std::any& carried() = 0;
};

// The generation of this process's rank; null unless the job is elastic.
Generation* current_generation();

}  // namespace gantry
