# Finds NCCL and the CUDA runtime's headers that nccl.h includes: a system install, NCCL_ROOT, the CUDA toolkit, or the pip wheels
# nvidia-nccl-cu13 and nvidia-cuda-runtime in the project's own .deps or beside LibTorch.
#
# Gives the target NCCL::NCCL, NCCL_VERSION, and NCCL_STREAMS: whether LibTorch's streams tell their native handle, which the
# backend needs.
file(GLOB _site ${CMAKE_CURRENT_LIST_DIR}/../.deps/*/lib/python3*/site-packages/nvidia ${LibTorch_ROOT}/../nvidia)
set(_nccl ${NCCL_ROOT} $ENV{NCCL_ROOT})
set(_cuda ${CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH})
foreach(_dir ${_site})
  list(APPEND _nccl ${_dir}/nccl)
  file(GLOB _runtimes ${_dir}/cu13 ${_dir}/cuda_runtime)
  list(APPEND _cuda ${_runtimes})
endforeach()
list(APPEND _cuda /usr/local/cuda)

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${_nccl} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${_nccl} PATH_SUFFIXES lib lib64)
find_path(NCCL_CUDA_INCLUDE_DIR cuda_runtime.h HINTS ${_cuda} PATH_SUFFIXES include)

if(NCCL_INCLUDE_DIR)
  set(_version "")  # other modules have one
  foreach(_part MAJOR MINOR PATCH)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h _line REGEX "define NCCL_${_part} +[0-9]+")
    string(REGEX MATCH "[0-9]+" _number "${_line}")
    list(APPEND _version ${_number})
  endforeach()
  string(REPLACE ";" "." NCCL_VERSION "${_version}")
endif()
if(EXISTS ${LibTorch_INCLUDE_DIR}/c10/core/impl/DeviceGuardImplInterface.h)
  file(STRINGS ${LibTorch_INCLUDE_DIR}/c10/core/impl/DeviceGuardImplInterface.h _handle REGEX "getStreamNativeHandle")
  if(_handle)
    set(NCCL_STREAMS TRUE)
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR NCCL_CUDA_INCLUDE_DIR NCCL_STREAMS VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR};${NCCL_CUDA_INCLUDE_DIR}")
endif()
