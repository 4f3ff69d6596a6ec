// A collective of ranks that share a device: each reads the others' tensors where they lie, by its own kernels.
//
// Three steps over MPI, none of which waits for the device. An offer says where a rank's tensor is and what of it is
// whose, with the signal behind which it is ready; who has all offers puts its reads on the stream on which it was
// called. An all_reduce has a second round, as slices of sums are read by all. The last one tells that everything was
// read: the stream goes on after that, so nobody's memory changes before.
#pragma once

#include <optional>
#include <vector>

#include <c10/core/Event.h>

#include "gantry/comm/processes/process_collective.h"
#include "gantry/comm/shared_device/shared_device_job.h"

namespace gantry {

class DeviceCollective final : public ProcessCollective {
 public:
  DeviceCollective(std::shared_ptr<SharedDeviceJob> job, std::shared_ptr<GroupChannel> channel);

  // For Work, after wait() or done(): the calling thread's current stream comes after it.
  void precede_current();
  bool passed() const { return end_.query(); }  // the device has done it

 protected:
  void prepare() override;
  bool advance() override;
  void finish() override;
  std::string describe_pending(const std::vector<int>& missing) override;
  std::vector<int> awaited_ranks(const std::vector<int>& missing) override { return channel_->world_ranks(missing); }

 private:
  // What a member tells another one of its tensor, in elements.
  struct Offer {
    SharedPlace place;
    SharedSignal ready;
    std::int64_t begin = 0, count = 0;  // what of it the other one reads
    std::int64_t full = 0;              // in all_reduce and broadcast: elements of the tensor
    std::int64_t root = 0;
  };

  void offer();
  void tell_all();
  void check_offers();
  void follow_all();
  Offer offer_for(int member) const;
  std::int64_t expected_from(int member) const;
  std::int64_t slice_begin(int member) const { return call_.elements * member / channel_->size(); }
  torch::Tensor own(char* memory, std::int64_t begin, std::int64_t count) const;
  torch::Tensor offered(int member, std::int64_t begin, std::int64_t count);
  void read_parts();
  void sum_part();
  void read_sums();
  int world_rank(int member) const { return channel_->world_ranks({member}).front(); }

  const std::shared_ptr<SharedDeviceJob> job_;
  c10::Stream stream_;  // on which it was called
  c10::Event end_;
  int step_ = 0;
  std::vector<Offer> given_, offers_;  // by member; this rank's own among the offers
  std::vector<SharedSignal> signals_;  // of the later rounds, by member
  SharedSignal notified_;
};

}  // namespace gantry
