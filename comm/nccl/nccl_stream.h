// A stream that no other communicator of this process has.
//
// LibTorch deals the streams of a fixed pool (32 of a priority and device) in turn, so the 33rd that is asked for is
// the first again. Two communicators on one stream would wait behind each other's operations, and the rule that keeps
// the device free of deadlock (nccl_backend.h) would not hold. So what is lent is remembered, and given back at the
// end.
#pragma once

#include "gantry/comm/nccl/nccl_device.h"

namespace gantry {

class NcclStream {
 public:
  // ResourceError where all of the device's pool are lent.
  explicit NcclStream(const NcclDevice& device);
  ~NcclStream();
  NcclStream(const NcclStream&) = delete;
  NcclStream& operator=(const NcclStream&) = delete;

  const c10::Stream& get() const { return stream_; }

 private:
  const c10::Stream stream_;
};

}  // namespace gantry
