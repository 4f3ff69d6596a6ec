# One target a folder. Each folder's *.cpp (subfolders included) becomes an object library gantry_<folder>; all of them make
# libgantry.so, which users link as gantry::gantry. Flags are the same everywhere so that one precompiled header serves all.

add_compile_options(-fPIC -Wall -Wextra -Wno-missing-field-initializers -fno-math-errno)
# The garbage collector of g++ takes a tenth of a compilation and frees little, so it waits until there are 4 GB.
add_compile_options($<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=4000000>)
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

# "gantry/core/mesh.h" is a public header in include/, as it is in the install; private ones, beside their sources, are found through
# this link.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include)
file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_BINARY_DIR}/include/gantry SYMBOLIC)
include_directories(${PROJECT_SOURCE_DIR}/include ${CMAKE_BINARY_DIR}/include)

set_property(GLOBAL PROPERTY GANTRY_FOLDERS "")
set_property(GLOBAL PROPERTY GANTRY_PLAIN_FOLDERS "")

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
    target_precompile_headers(gantry_pch PRIVATE "${PROJECT_SOURCE_DIR}/include/gantry/tensors/libtorch.h" <fmt/format.h>
                               <nlohmann/json.hpp> <functional> <map> <memory> <optional> <string> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM gantry_pch)
endfunction()

# Several sources of a target at once: each compilation reads the headers again and instantiates what LibTorch's leave pending, which
# takes longer than a source of ours. So names in unnamed namespaces are unique within a folder. The sources are divided evenly, for
# a remainder of one source costs half as much as 24 of them.
function(gantry_join_sources target)
  set(most 36)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  math(EXPR parts "(${count} + ${most} - 1) / ${most}")
  math(EXPR part "(${count} + ${parts} - 1) / ${parts}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${GANTRY_JOIN_SOURCES} UNITY_BUILD_BATCH_SIZE ${part})
  # A source takes a header's place there, where unnamed namespaces would be suspicious.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
endfunction()

# The options of a target whose own loops take no time: -O1 costs two thirds of the compilation of -O2. With it g++ 12
# warns of comparisons of strings that are sound (GCC bug 105651).
set(gantry_cool_options $<$<CONFIG:Release>:-O1> -Wno-stringop-overread)

# gantry_folder(NAME [PLAIN] [HOT] [LOOPS] [FROM FOLDER] [ONLY REGEX] [EXCLUDE REGEX] [WITH FILE...] [INCLUDES FOLDER...]
# [DEFINITIONS ...] [LIBRARIES ...]): a folder, or its files whose paths match, and the files after WITH, in libgantry.so.
# PLAIN: without LibTorch, in libgantry-core.so. HOT: its own loops take time. LOOPS: they are vectorised whatever their length.
function(gantry_folder name)
  cmake_parse_arguments(ARG "PLAIN;HOT;LOOPS" "FROM;ONLY;EXCLUDE" "WITH;INCLUDES;DEFINITIONS;LIBRARIES" ${ARGN})
  if(NOT ARG_FROM)
    set(ARG_FROM ${name})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${ARG_FROM}/*.cpp)
  if(ARG_ONLY)
    list(FILTER sources INCLUDE REGEX ${ARG_ONLY})
  endif()
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX ${ARG_EXCLUDE})
  endif()
  add_library(gantry_${name} OBJECT ${sources} ${ARG_WITH})
  target_include_directories(gantry_${name} SYSTEM PRIVATE ${ARG_INCLUDES})
  target_compile_definitions(gantry_${name} PRIVATE ${ARG_DEFINITIONS})
  if(ARG_LOOPS AND NOT GANTRY_SANITIZE)  # with a sanitizer g++ 12 crashes on one of them
    target_compile_options(gantry_${name} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O3>)
  elseif(NOT ARG_HOT AND NOT ARG_LOOPS)
    target_compile_options(gantry_${name} PRIVATE ${gantry_cool_options})
  endif()
  target_link_libraries(gantry_${name} PRIVATE ${ARG_LIBRARIES})
  if(ARG_PLAIN)
    target_link_libraries(gantry_${name} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
    set_property(GLOBAL APPEND PROPERTY GANTRY_PLAIN_FOLDERS gantry_${name})
  else()
    gantry_use_torch(gantry_${name})
    set_property(GLOBAL APPEND PROPERTY GANTRY_FOLDERS gantry_${name})
  endif()
  gantry_join_sources(gantry_${name})
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
                        JPEG::JPEG PNG::PNG Threads::Threads ${XXHASH_LIBRARY} ${CMAKE_DL_LIBS})
  if(GANTRY_WITH_MPI)
    target_link_libraries(gantry PRIVATE ${MPI_C_LIBRARIES})
  endif()
  if(gantry_cuda)
    gantry_cuda_objects(cuda_objects)
    target_sources(gantry PRIVATE ${cuda_objects})
    set_source_files_properties(${cuda_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_link_libraries(gantry PRIVATE ${CUDART_LIBRARY})
    get_filename_component(cuda_folder ${CUDART_LIBRARY} DIRECTORY)
    set(cuda_folder ";${cuda_folder}")
  endif()
  set(nccl_folder "")
  if(gantry_nccl)
    target_link_libraries(gantry PRIVATE NCCL::NCCL)
    get_filename_component(nccl_folder ${NCCL_LIBRARY} DIRECTORY)
    set(nccl_folder ";${nccl_folder}")
  endif()
  set_target_properties(gantry PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION 0
                        INSTALL_RPATH "$ORIGIN;${LibTorch_ROOT}/lib${nccl_folder}${cuda_folder}")
  include(GantryInstall)
endfunction()

# The page of the run report as a source, whose path goes to RESULT.
function(gantry_report_page result)
  file(GLOB page CONFIGURE_DEPENDS trainer/report/page/*)
  set(embedded ${CMAKE_BINARY_DIR}/report_page_files.cpp)
  set_source_files_properties(${embedded} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # linters find no file that a build makes
  add_custom_command(OUTPUT ${embedded} DEPENDS ${page} ${PROJECT_SOURCE_DIR}/cmake/EmbedPage.cmake
    COMMAND ${CMAKE_COMMAND} -DPAGE=${PROJECT_SOURCE_DIR}/trainer/report/page -DOUTPUT=${embedded} -P ${PROJECT_SOURCE_DIR}/cmake/EmbedPage.cmake)
  set(${result} ${embedded} PARENT_SCOPE)
endfunction()

# The chat templates by name.
function(gantry_chat_templates result)
  file(GLOB templates CONFIGURE_DEPENDS data/chat_templates/*.jinja)
  set(embedded ${CMAKE_BINARY_DIR}/chat_template_files.cpp)
  set_source_files_properties(${embedded} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # linters find no file that a build makes
  add_custom_command(OUTPUT ${embedded} DEPENDS ${templates} ${PROJECT_SOURCE_DIR}/cmake/EmbedTemplates.cmake
    COMMAND ${CMAKE_COMMAND} -DTEMPLATES=${PROJECT_SOURCE_DIR}/data/chat_templates -DOUTPUT=${embedded}
            -P ${PROJECT_SOURCE_DIR}/cmake/EmbedTemplates.cmake)
  set(${result} ${embedded} PARENT_SCOPE)
endfunction()

# bin/gantry answers what needs no LibTorch and hands the rest to libexec/gantry/gantry-engine. All of it but main is a library of
# objects, gantry_front_parts, which tests link too.
function(gantry_programs)
  file(GLOB parts CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} cli/*.cpp launch/supervisor/*.cpp)
  list(REMOVE_ITEM parts cli/main.cpp)
  add_library(gantry_front_parts OBJECT ${parts})
  set(backends "local (threads), tcp (processes)")
  if(GANTRY_WITH_MPI)
    string(APPEND backends ", mpi (Open MPI)")
  endif()
  if(gantry_cuda)
    string(REPLACE ";" ", sm_" architectures "${GANTRY_CUDA_ARCHITECTURES}")
    string(APPEND backends ", kernels for CUDA (sm_${architectures})")
    if(GANTRY_WITH_MPI)
      string(APPEND backends ", ipc (ranks that share a CUDA device)")
    endif()
  endif()
  if(gantry_nccl)
    string(APPEND backends ", nccl (NCCL ${NCCL_VERSION})")
  else()
    string(APPEND backends ", no nccl (its headers were not there when it was built: ./dev setup --nccl brings them)")
  endif()
  gantry_join_sources(gantry_front_parts)
  target_compile_options(gantry_front_parts PRIVATE ${gantry_cool_options})
  target_include_directories(gantry_front_parts SYSTEM PRIVATE ${BOOST_ASIO_INCLUDE_DIR})
  target_compile_definitions(gantry_front_parts PRIVATE GANTRY_BACKENDS="${backends}")
  target_link_libraries(gantry_front_parts PUBLIC fmt::fmt yaml-cpp CLI11::CLI11 ${text_libraries} ${XXHASH_LIBRARY} Threads::Threads)

  add_executable(gantry_front cli/main.cpp)
  get_property(plain_folders GLOBAL PROPERTY GANTRY_PLAIN_FOLDERS)
  foreach(folder ${plain_folders})
    target_sources(gantry_front PRIVATE $<TARGET_OBJECTS:${folder}>)
  endforeach()
  target_link_libraries(gantry_front PRIVATE gantry_front_parts)
  set_target_properties(gantry_front PROPERTIES OUTPUT_NAME gantry)
  install(TARGETS gantry_front RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

  file(GLOB engine CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} cli/engine/*.cpp)
  add_executable(gantry_engine ${engine} cli/commands.cpp cli/generate_command.cpp cli/progress_bar.cpp cli/warnings.cpp
                 cli/checkpoint_tree.cpp cli/difference_text.cpp cli/config_command.cpp cli/context_text.cpp cli/expert_text.cpp
                 cli/plan_command.cpp cli/plan_calibrate_command.cpp cli/plan_text.cpp cli/recompute_text.cpp)
  set_target_properties(gantry_engine PROPERTIES OUTPUT_NAME gantry-engine
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/libexec/gantry INSTALL_RPATH "$ORIGIN/../../${CMAKE_INSTALL_LIBDIR};${LibTorch_ROOT}/lib")
  target_compile_options(gantry_engine PRIVATE ${gantry_cool_options})
  gantry_use_torch(gantry_engine)
  gantry_join_sources(gantry_engine)
  target_link_libraries(gantry_engine PRIVATE gantry CLI11::CLI11)
  install(TARGETS gantry_engine RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/gantry)
  add_dependencies(gantry_front gantry_engine)
endfunction()
