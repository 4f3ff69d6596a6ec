// LibTorch 2.11 to 2.14: what differs between them in the calls that Gantry makes. (How their libraries are linked
// stands in cmake/FindLibTorch.cmake.)
#pragma once

#include <torch/csrc/profiler/orchestration/observer.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 11
#error "Gantry needs LibTorch 2.11 or newer"
#endif

namespace gantry {

// The profiler that records all threads of this process, null without one. Its own until it is ended.
inline torch::profiler::impl::ProfilerStateBase* process_profiler() {
#if TORCH_VERSION_MINOR < 14
  return torch::profiler::impl::ProfilerStateBase::get(/*global=*/true);
#else
  return torch::profiler::impl::ProfilerStateBase::getGlobal().get();
#endif
}

}  // namespace gantry
