// Differences between LibTorch 2.11 and 2.14 in the functions that Gantry calls. See cmake/FindLibTorch.cmake
// for the linking.
#pragma once

#include <c10/core/StorageImpl.h>
#include <torch/csrc/profiler/orchestration/observer.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 11
#error "Gantry needs LibTorch 2.11 or newer"
#endif

namespace gantry {

// Returns the profiler that records all threads of this process, or null. It stays valid until the profiling
// ends.
inline torch::profiler::impl::ProfilerStateBase* process_profiler() {
#if TORCH_VERSION_MINOR < 14
  return torch::profiler::impl::ProfilerStateBase::get(/*global=*/true);
#else
  return torch::profiler::impl::ProfilerStateBase::getGlobal().get();
#endif
}

#if TORCH_VERSION_MINOR < 13
// Reaches the two private members of c10::StorageImpl that clear_access_error() needs. Access is not checked in the
// arguments of an explicit instantiation ([temp.spec.general]).
namespace torch_versions_detail {
template <auto kFlag, auto kRefresh>
struct StorageMembers {
  friend void clear_access_error_members(c10::StorageImpl& storage) {
    storage.*kFlag = false;
    (storage.*kRefresh)();
  }
};
void clear_access_error_members(c10::StorageImpl& storage);
template struct StorageMembers<&c10::StorageImpl::throw_on_immutable_data_ptr_,
                               &c10::StorageImpl::refresh_has_data_ptr_check>;
}  // namespace torch_versions_detail
#endif

// Reverses release_data_and_set_meta_custom_data_ptr_error_msg_(): the storage may be read and written again.
inline void clear_access_error(c10::StorageImpl& storage) {
#if TORCH_VERSION_MINOR < 13
  torch_versions_detail::clear_access_error_members(storage);
#else
  storage.clear_data_ptr_access_error_msg_();
#endif
}

}  // namespace gantry
