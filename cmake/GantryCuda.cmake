# The kernels for CUDA (tensors/kernels/cuda/*.cu), compiled by nvcc for GANTRY_CUDA_ARCHITECTURES and, as PTX, for what
# is newer than the last of them. CMake's own CUDA language is not used, because it links a program with the toolkit's
# layout of folders before anything else, and the Python package index has another one.
#
# nvcc: that of CUDA_HOME, of the wheel nvidia-cuda-nvcc beside LibTorch, of the PATH, or of /usr/local/cuda.
# Sets gantry_cuda: whether they are built.
set(GANTRY_CUDA_ARCHITECTURES 80 90 CACHE STRING "What the kernels for CUDA are compiled for")
set(gantry_cuda OFF)

get_filename_component(_cuda_wheels ${LibTorch_ROOT}/../nvidia/cu13 ABSOLUTE)
find_program(NVCC nvcc HINTS ENV CUDA_HOME ${_cuda_wheels} PATHS /usr/local/cuda PATH_SUFFIXES bin)
get_filename_component(_toolkit ${NVCC} REALPATH)
get_filename_component(_toolkit ${_toolkit}/../.. ABSOLUTE)
find_library(CUDART_LIBRARY NAMES cudart libcudart.so.13 HINTS ${_cuda_wheels} ${_toolkit} PATH_SUFFIXES lib lib64)
# By a header that comes with the compiler: the wheel nvidia-cuda-runtime alone has the other headers, but not these.
find_path(CUDART_INCLUDE_DIR crt/host_config.h HINTS ${_cuda_wheels} ${_toolkit} PATH_SUFFIXES include targets/x86_64-linux/include targets/sbsa-linux/include)
if(NOT GANTRY_WITH_CUDA STREQUAL "OFF" AND LibTorch_FOR_CUDA AND NVCC AND CUDART_LIBRARY AND CUDART_INCLUDE_DIR)
  set(gantry_cuda ON)
elseif(GANTRY_WITH_CUDA STREQUAL "ON")
  message(FATAL_ERROR "kernels for CUDA: LibTorch ${LibTorch_ROOT} (for CUDA: ${LibTorch_FOR_CUDA}), nvcc '${NVCC}', libcudart "
                      "'${CUDART_LIBRARY}', crt/host_config.h '${CUDART_INCLUDE_DIR}'; all four are needed: run ./dev setup --cuda, or set CUDA_HOME")
endif()

# Objects of the kernels, as RESULT.
function(gantry_cuda_objects result)
  set(targets "")
  foreach(architecture ${GANTRY_CUDA_ARCHITECTURES})
    list(APPEND targets -gencode arch=compute_${architecture},code=sm_${architecture})
    set(newest ${architecture})
  endforeach()
  list(APPEND targets -gencode arch=compute_${newest},code=compute_${newest})
  file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tensors/kernels/cuda/*.cu)
  set(objects "")
  foreach(kernel ${kernels})
    get_filename_component(name ${kernel} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    # Without fused multiplications: what host and device both compute has the same bits.
    add_custom_command(OUTPUT ${object} DEPENDS ${kernel} DEPFILE ${object}.d
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
      COMMAND ${NVCC} -std=c++20 -O3 -fmad=false -ccbin ${CMAKE_CXX_COMPILER} -Xcompiler -fPIC,-Wall,-Wextra ${targets}
              -I ${CMAKE_BINARY_DIR}/include -isystem ${LibTorch_INCLUDE_DIR} -MD -MF ${object}.d -c ${kernel} -o ${object}
      COMMENT "Compiling ${kernel} by nvcc" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set(${result} ${objects} PARENT_SCOPE)
endfunction()
