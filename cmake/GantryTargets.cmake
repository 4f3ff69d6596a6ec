# One target a folder. Each folder's *.cpp (subfolders included) becomes an object library gantry_<folder>; all of them make
# libgantry.so, which users link as gantry::gantry. Flags are the same everywhere so that one precompiled header serves all.

add_compile_options(-fPIC -Wall -Wextra -Wno-missing-field-initializers -fno-math-errno)
if(GANTRY_WARNINGS_AS_ERRORS)
  add_compile_options(-Werror)
endif()
if(GANTRY_SANITIZE)
  # Sanitizers keep g++ 12 from seeing that values are set, and the thread sanitizer does not follow Asio's fences: it has locks too.
  add_compile_options(-fsanitize=${GANTRY_SANITIZE} -fno-omit-frame-pointer -g1 -O1 "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-tsan>")
  add_link_options(-fsanitize=${GANTRY_SANITIZE})
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${CCACHE_PROGRAM})
  add_compile_options(-fpch-preprocess)
endif()

# "gantry/core/mesh.h" resolves through this link, as it does in the install.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include)
file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_BINARY_DIR}/include/gantry SYMBOLIC)
include_directories(${CMAKE_BINARY_DIR}/include)

set_property(GLOBAL PROPERTY GANTRY_FOLDERS "")
set_property(GLOBAL PROPERTY GANTRY_PLAIN_FOLDERS "")

function(_gantry_register target)
  set_property(GLOBAL APPEND PROPERTY GANTRY_FOLDERS ${target})
endfunction()

# gantry_plain_folder(NAME [FROM FOLDER ONLY REGEX] [EXCLUDE REGEX] [LIBRARIES ...]): a folder, or some files of one, without
# LibTorch.
function(gantry_plain_folder name)
  cmake_parse_arguments(ARG "" "FROM;ONLY;EXCLUDE" "LIBRARIES" ${ARGN})
  if(NOT ARG_FROM)
    set(ARG_FROM ${name})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${ARG_FROM}/*.cpp)
  if(ARG_ONLY)
    list(FILTER sources INCLUDE REGEX ${ARG_ONLY})
  endif()
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX ${ARG_EXCLUDE})
  endif()
  add_library(gantry_${name} OBJECT ${sources})
  target_link_libraries(gantry_${name} PUBLIC ${ARG_LIBRARIES} ${ARG_UNPARSED_ARGUMENTS} fmt::fmt)
  target_include_directories(gantry_${name} PRIVATE ${XXHASH_INCLUDE_DIR})
  set_property(GLOBAL APPEND PROPERTY GANTRY_PLAIN_FOLDERS gantry_${name})
endfunction()

# LibTorch's headers carry an fmt of their own without its library, so whichever comes first is used as headers only.
# The precompiled header of everything that includes LibTorch, tests too.
function(gantry_use_torch target)
  target_link_libraries(${target} PUBLIC LibTorch::LibTorch fmt::fmt-header-only nlohmann_json::nlohmann_json Threads::Threads)
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS)
    return()
  endif()
  if(NOT TARGET gantry_pch)
    # Written once: a newer file would make everything be built again.
    if(NOT EXISTS ${CMAKE_BINARY_DIR}/pch/gantry_pch.cpp)
      file(WRITE ${CMAKE_BINARY_DIR}/pch/gantry_pch.cpp "// Holds the precompiled header.\n")
    endif()
    add_library(gantry_pch OBJECT ${CMAKE_BINARY_DIR}/pch/gantry_pch.cpp)
    target_link_libraries(gantry_pch PUBLIC LibTorch::LibTorch fmt::fmt-header-only nlohmann_json::nlohmann_json Threads::Threads)
    target_precompile_headers(gantry_pch PRIVATE <torch/torch.h> <fmt/format.h> <map> <memory> <string> <vector> <functional>)
  endif()
  target_precompile_headers(${target} REUSE_FROM gantry_pch)
endfunction()

# Several sources of a target at once: each compilation instantiates again what LibTorch's headers leave pending, which takes
# longer than a source of ours. So names in unnamed namespaces are unique within a folder.
function(gantry_join_sources target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${GANTRY_JOIN_SOURCES} UNITY_BUILD_BATCH_SIZE 6)
  # A source takes a header's place there, where unnamed namespaces would be suspicious.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
endfunction()

# gantry_folder(NAME [FROM FOLDER PATTERN GLOB] [EXCLUDE REGEX]): a folder that knows LibTorch.
function(gantry_folder name)
  cmake_parse_arguments(ARG "" "FROM;PATTERN;EXCLUDE" "" ${ARGN})
  if(ARG_FROM)
    file(GLOB sources CONFIGURE_DEPENDS ${ARG_FROM}/${ARG_PATTERN})
  else()
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${name}/*.cpp)
  endif()
  if(NOT GANTRY_WITH_MPI)
    list(FILTER sources EXCLUDE REGEX "/comm/mpi/")
  endif()
  if(NOT gantry_nccl)
    list(FILTER sources EXCLUDE REGEX "/comm/nccl/")
  endif()
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX ${ARG_EXCLUDE})
  endif()
  if(NOT sources)
    return()
  endif()
  add_library(gantry_${name} OBJECT ${sources})
  gantry_use_torch(gantry_${name})
  if(NOT name STREQUAL models)  # whose families have functions of the same names
    gantry_join_sources(gantry_${name})
  endif()
  if(name STREQUAL comm AND GANTRY_WITH_MPI)
    target_compile_definitions(gantry_comm PRIVATE OMPI_SKIP_MPICXX)
    target_include_directories(gantry_comm SYSTEM PRIVATE ${MPI_C_INCLUDE_DIRS})
    set_property(SOURCE comm/backends.cpp APPEND PROPERTY COMPILE_DEFINITIONS GANTRY_WITH_MPI)
  endif()
  if(name STREQUAL comm AND gantry_nccl)
    target_include_directories(gantry_comm SYSTEM PRIVATE ${NCCL_INCLUDE_DIR} ${NCCL_CUDA_INCLUDE_DIR})
    set_property(SOURCE comm/backends.cpp APPEND PROPERTY COMPILE_DEFINITIONS GANTRY_WITH_NCCL)
  endif()
  if(name STREQUAL plugins)
    target_include_directories(gantry_${name} PRIVATE ${XXHASH_INCLUDE_DIR})
  endif()
  _gantry_register(gantry_${name})
endfunction()

# libgantry-core.so, of the plain folders, which programs without LibTorch link as gantry::core.
function(gantry_core_library)
  get_property(folders GLOBAL PROPERTY GANTRY_PLAIN_FOLDERS)
  add_library(gantry_plain SHARED)
  add_library(gantry::core ALIAS gantry_plain)
  foreach(folder ${folders})
    target_sources(gantry_plain PRIVATE $<TARGET_OBJECTS:${folder}>)
  endforeach()
  target_link_libraries(gantry_plain PRIVATE fmt::fmt yaml-cpp ${text_libraries} ${XXHASH_LIBRARY} Threads::Threads)
  set_target_properties(gantry_plain PROPERTIES OUTPUT_NAME gantry-core EXPORT_NAME core LINKER_LANGUAGE CXX
                        VERSION ${PROJECT_VERSION} SOVERSION 0)
endfunction()

# libgantry.so, its install rules and the CMake package.
function(gantry_library)
  gantry_core_library()
  get_property(folders GLOBAL PROPERTY GANTRY_FOLDERS)
  add_library(gantry SHARED)
  add_library(gantry::gantry ALIAS gantry)
  target_link_libraries(gantry PUBLIC gantry_plain)
  foreach(folder ${folders})
    target_sources(gantry PRIVATE $<TARGET_OBJECTS:${folder}>)
  endforeach()
  target_link_libraries(gantry PUBLIC LibTorch::LibTorch fmt::fmt-header-only PRIVATE fmt::fmt yaml-cpp ${text_libraries}
                        Threads::Threads ${XXHASH_LIBRARY} ${CMAKE_DL_LIBS})
  if(GANTRY_WITH_MPI)
    target_link_libraries(gantry PRIVATE ${MPI_C_LIBRARIES})
  endif()
  set(nccl_folder "")
  if(gantry_nccl)
    target_link_libraries(gantry PRIVATE NCCL::NCCL)
    get_filename_component(nccl_folder ${NCCL_LIBRARY} DIRECTORY)
    set(nccl_folder ";${nccl_folder}")
  endif()
  set_target_properties(gantry PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION 0
                        INSTALL_RPATH "$ORIGIN;${LibTorch_ROOT}/lib${nccl_folder}")
  include(GantryInstall)
endfunction()

# The run report, torch-free, of both programs: cli/report and the page that it puts in.
function(_gantry_report)
  file(GLOB page CONFIGURE_DEPENDS cli/report/page/*)
  set(embedded ${CMAKE_BINARY_DIR}/report_page_files.cpp)
  add_custom_command(OUTPUT ${embedded} DEPENDS ${page} ${PROJECT_SOURCE_DIR}/cmake/EmbedPage.cmake
    COMMAND ${CMAKE_COMMAND} -DPAGE=${PROJECT_SOURCE_DIR}/cli/report/page -DOUTPUT=${embedded} -P ${PROJECT_SOURCE_DIR}/cmake/EmbedPage.cmake)
  file(GLOB sources CONFIGURE_DEPENDS cli/report/*.cpp)
  add_library(gantry_report OBJECT ${sources} ${embedded})
  target_link_libraries(gantry_report PUBLIC nlohmann_json::nlohmann_json fmt::fmt-header-only)
endfunction()

# bin/gantry answers what needs no LibTorch and hands the rest to libexec/gantry/gantry-engine.
function(gantry_programs)
  _gantry_report()
  file(GLOB front CONFIGURE_DEPENDS cli/*.cpp cli/launch/*.cpp)
  file(GLOB engine CONFIGURE_DEPENDS cli/engine/*.cpp)
  if(front)
    add_executable(gantry_front ${front} $<TARGET_OBJECTS:gantry_core> $<TARGET_OBJECTS:gantry_schedule>
                   $<TARGET_OBJECTS:gantry_text> $<TARGET_OBJECTS:gantry_format> $<TARGET_OBJECTS:gantry_recorder>
                   $<TARGET_OBJECTS:gantry_report>)
    set_target_properties(gantry_front PROPERTIES OUTPUT_NAME gantry)
    set(backends "local (threads)")
    if(GANTRY_WITH_MPI)
      string(APPEND backends ", mpi (Open MPI)")
    endif()
    if(gantry_nccl)
      string(APPEND backends ", nccl (NCCL ${NCCL_VERSION})")
    else()
      string(APPEND backends ", no nccl (its headers were not there when it was built: ./dev setup --nccl brings them)")
    endif()
    target_compile_definitions(gantry_front PRIVATE GANTRY_BACKENDS="${backends}")
    target_link_libraries(gantry_front PRIVATE fmt::fmt yaml-cpp CLI11::CLI11 ${text_libraries} ${XXHASH_LIBRARY}
                          Threads::Threads)
    install(TARGETS gantry_front RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
  if(engine)
    add_executable(gantry_engine ${engine} cli/commands.cpp cli/generate_command.cpp cli/progress_bar.cpp cli/output.cpp
                   cli/checkpoint_tree.cpp cli/difference_text.cpp
                   $<TARGET_OBJECTS:gantry_report>)
    set_target_properties(gantry_engine PROPERTIES OUTPUT_NAME gantry-engine
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/libexec/gantry INSTALL_RPATH "$ORIGIN/../../${CMAKE_INSTALL_LIBDIR};${LibTorch_ROOT}/lib")
    gantry_use_torch(gantry_engine)
    gantry_join_sources(gantry_engine)
    target_link_libraries(gantry_engine PRIVATE gantry CLI11::CLI11)
    install(TARGETS gantry_engine RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/gantry)
    if(front)
      add_dependencies(gantry_front gantry_engine)
    endif()
  endif()
endfunction()
