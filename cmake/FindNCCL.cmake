# Finds NCCL: a system install, NCCL_ROOT, or the pip wheel nvidia-nccl-cu13 in the project's own .deps or beside LibTorch. CUDA's
# headers are not needed: comm/nccl/cuda_types has the two names that nccl.h uses.
#
# Gives the target NCCL::NCCL, NCCL_VERSION, and NCCL_STREAMS: whether LibTorch's streams tell their native handle, which the
# backend needs.
# Beside LibTorch first: one for CUDA has loaded that already.
file(GLOB _site ${CMAKE_CURRENT_LIST_DIR}/../.deps/*/lib/python3*/site-packages/nvidia)
list(PREPEND _site ${LibTorch_ROOT}/../nvidia)
set(_nccl ${NCCL_ROOT} $ENV{NCCL_ROOT})
foreach(_dir ${_site})
  list(APPEND _nccl ${_dir}/nccl)
endforeach()

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${_nccl} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${_nccl} PATH_SUFFIXES lib lib64)

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
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR NCCL_STREAMS VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}/../comm/nccl/cuda_types;${NCCL_INCLUDE_DIR}")
endif()
