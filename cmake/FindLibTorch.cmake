# Finds LibTorch by its files alone: a pip wheel, a LibTorch archive or a system install, whatever CUDA it was built with.
# TorchConfig.cmake is not used, because it demands the toolkits that the binary was built with.
#
# Looks at Torch_DIR, CMAKE_PREFIX_PATH (both as cache entry or environment variable), then the project's own .deps.
# Gives the target LibTorch::LibTorch, LibTorch_ROOT, and LibTorch_FOR_CUDA.
set(_hints "")
foreach(_dir ${Torch_DIR} $ENV{Torch_DIR})
  list(APPEND _hints ${_dir} ${_dir}/../../..)
endforeach()
string(REPLACE ":" ";" _prefixes "$ENV{CMAKE_PREFIX_PATH}")
list(APPEND _hints ${CMAKE_PREFIX_PATH} ${_prefixes})
file(GLOB _own ${CMAKE_CURRENT_LIST_DIR}/../.deps/*/lib/python3*/site-packages/torch)
list(APPEND _hints ${_own})

find_path(LibTorch_INCLUDE_DIR torch/script.h HINTS ${_hints} PATH_SUFFIXES include)
find_path(LibTorch_API_INCLUDE_DIR torch/torch.h HINTS ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include ${_hints}
          PATH_SUFFIXES include/torch/csrc/api/include NO_DEFAULT_PATH)
foreach(_lib torch torch_cpu c10)
  find_library(LibTorch_${_lib}_LIBRARY ${_lib} HINTS ${LibTorch_INCLUDE_DIR}/../lib ${_hints} PATH_SUFFIXES lib)
endforeach()

if(LibTorch_INCLUDE_DIR)
  # Newer versions keep the numbers in headeronly/, older ones in torch/version.h.
  foreach(_file torch/headeronly/version.h torch/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS ${LibTorch_INCLUDE_DIR}/${_file} AND NOT LibTorch_VERSION)
      file(STRINGS ${LibTorch_INCLUDE_DIR}/${_file} _version REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      string(REGEX REPLACE "[^0-9;]" "" _version "${_version}")
      string(REPLACE ";" "." LibTorch_VERSION "${_version}")
    endif()
  endforeach()
  get_filename_component(LibTorch_ROOT ${LibTorch_INCLUDE_DIR}/.. ABSOLUTE)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_torch_LIBRARY LibTorch_torch_cpu_LIBRARY LibTorch_c10_LIBRARY LibTorch_INCLUDE_DIR LibTorch_API_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION)

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  set_target_properties(LibTorch::LibTorch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIR};${LibTorch_API_INCLUDE_DIR}"
    INTERFACE_COMPILE_OPTIONS "-Wno-deprecated-declarations")
  # Before LibTorch, whose libraries export parts of a libstdc++ of their own: std::filesystem::remove_all of 2.11's crashes.
  set(_libraries -Wl,--push-state,--no-as-needed,-lstdc++,--pop-state
                 ${LibTorch_torch_LIBRARY} ${LibTorch_torch_cpu_LIBRARY} ${LibTorch_c10_LIBRARY})
  if(EXISTS ${LibTorch_ROOT}/lib/libtorch_cuda.so)  # its kernels register themselves when it is loaded
    set(LibTorch_FOR_CUDA TRUE)
    list(APPEND _libraries -Wl,--no-as-needed ${LibTorch_ROOT}/lib/libtorch_cuda.so ${LibTorch_ROOT}/lib/libc10_cuda.so -Wl,--as-needed)
  endif()
  target_link_libraries(LibTorch::LibTorch INTERFACE ${_libraries})
endif()
