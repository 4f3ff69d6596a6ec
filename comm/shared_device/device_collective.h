// A collective of ranks that share a device: the kernels of each rank read the other ranks' tensors directly.
//
// It exchanges messages over MPI in steps, none of which waits for the device. An offer contains the location
// of a rank's tensor, the range that the receiver reads, and the signal after which the tensor is ready. A
// rank with all offers issues its reads to the stream of the call. An all_reduce has a second round, because
// all ranks read the reduced slices. The last step reports that everything was read. The stream waits for
// these reports, so no rank changes its memory before.
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

  // Called by the Work after wait() or done(): makes the calling thread's current stream wait for the
  // operation.
  void precede_current();
  bool passed() const { return end_.query(); }  // the device has completed the operation

 protected:
  void prepare() override;
  bool advance() override;
  void finish() override;
  std::string describe_pending(const std::vector<int>& missing) override;
  std::vector<int> awaited_ranks(const std::vector<int>& missing) override { return channel_->world_ranks(missing); }

 private:
  // The description of a member's tensor for another member, in elements.
  struct Offer {
    SharedPlace place;
    SharedSignal ready;
    std::int64_t begin = 0, count = 0;  // range that the other member reads
    std::int64_t full = 0;              // in all_reduce and broadcast: number of elements of the tensor
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
  c10::Stream stream_;  // stream of the call
  c10::Event end_;
  int step_ = 0;
  std::vector<Offer> given_, offers_;  // by member; offers_ includes this rank's own
  std::vector<SharedSignal> signals_;  // signals of the later rounds, by member
  SharedSignal notified_;
};

}  // namespace gantry
