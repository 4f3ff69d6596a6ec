# What the table in tests/CMakeLists.txt is written in. A program has the tests of a folder, and a ctest entry those of one source.

# gantry_plain_tests(NAME GLOB... [WITH SOURCE...] [LINK LIBRARY...]): a program without LibTorch.
# gantry_torch_tests(NAME GLOB... [WITH SOURCE...] [LINK LIBRARY...]): a program with it.
# Its sources are <GLOB>_test.cpp, less those that a row above has taken, and WITH's, which hold no tests.
function(gantry_plain_tests name)
  _gantry_tests(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE gantry_plain fmt::fmt yaml-cpp nlohmann_json::nlohmann_json Threads::Threads)
endfunction()

function(gantry_torch_tests name)
  _gantry_tests(${name} ${ARGN})
  gantry_use_torch(${name})
  target_link_libraries(${name} PRIVATE gantry_torch_test_support)
endfunction()

function(_gantry_tests name)
  cmake_parse_arguments(ARG "" "" "WITH;LINK" ${ARGN})
  list(TRANSFORM ARG_UNPARSED_ARGUMENTS APPEND "_test.cpp")
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${ARG_UNPARSED_ARGUMENTS})
  get_property(taken GLOBAL PROPERTY GANTRY_TEST_SOURCES)
  list(REMOVE_ITEM sources "" ${taken} ${tests_left_out})
  set_property(GLOBAL APPEND PROPERTY GANTRY_TEST_SOURCES ${sources})
  add_executable(${name} ${sources} ${ARG_WITH})
  gantry_join_sources(${name})
  target_compile_definitions(${name} PRIVATE ${test_definitions})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} gantry_test_support)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  set_property(GLOBAL APPEND PROPERTY GANTRY_TEST_PROGRAMS ${name})
  foreach(source ${sources})
    _gantry_test_entries(${name} ${source})
  endforeach()
endfunction()

# <folder>/<name> runs <folder>/<name>_test.cpp's tests; one that begins with "// ranks: 4 8" runs under mpirun, once for each
# number of ranks, and has as many cores; with "also over tcp", also under `gantry launch --backend tcp`.
function(_gantry_test_entries program source)
  get_filename_component(folder ${source} DIRECTORY)
  get_filename_component(file ${source} NAME_WE)
  string(REGEX REPLACE "_test$" "" name ${folder}/${file})
  file(STRINGS ${source} first_line LIMIT_COUNT 1)
  if(NOT first_line MATCHES "^// ranks:")
    add_test(NAME ${name} COMMAND ${program} --source=${file})
    _gantry_test_properties(${name} 1 ${folder})
    return()
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  string(REGEX MATCHALL "[0-9]+" counts "${first_line}")
  foreach(ranks ${counts})
    add_test(NAME ${name}_${ranks} COMMAND ${mpirun} -n ${ranks} $<TARGET_FILE:${program}> --source=${file})
    _gantry_test_properties(${name}_${ranks} ${ranks} ${folder} mpi)
    if(first_line MATCHES "also over tcp")
      string(REPLACE "_mpi" "_tcp" tcp_name ${name}_${ranks})
      set(launch $<TARGET_FILE:gantry_front> launch --backend tcp -n ${ranks} --)
      if(ranks EQUAL 1)
        set(launch "")
      endif()
      add_test(NAME ${tcp_name} COMMAND ${launch} $<TARGET_FILE:${program}> --source=${file})
      _gantry_test_properties(${tcp_name} ${ranks} ${folder} tcp)
      set_property(TEST ${tcp_name} APPEND PROPERTY ENVIRONMENT GANTRY_TEST_TCP=1)
    endif()
  endforeach()
endfunction()

# gantry_tests_on_devices(PROGRAM NAME...): <folder>/<name>_test.cpp of that program once more, with its ranks on pretended
# devices, as devices/<folder>_<name>.
function(gantry_tests_on_devices program)
  add_executable(${program}_on_devices $<TARGET_OBJECTS:${program}>)
  target_link_libraries(${program}_on_devices PRIVATE gantry_start_on_devices gantry_pretend_device gantry_nccl_on_fake
                        gantry_torch_test_support)
  set_target_properties(${program}_on_devices PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  set_property(GLOBAL APPEND PROPERTY GANTRY_TEST_PROGRAMS ${program}_on_devices)
  get_target_property(sources ${program} SOURCES)
  foreach(name ${ARGN})
    list(FILTER sources INCLUDE REGEX "_test.cpp$")
    set(source ${sources})
    list(FILTER source INCLUDE REGEX "/${name}_test.cpp$")
    get_filename_component(folder ${source} DIRECTORY)
    add_test(NAME devices/${folder}_${name} COMMAND ${program}_on_devices --source=${name}_test)
    _gantry_test_properties(devices/${folder}_${name} 1 devices)
  endforeach()
endfunction()

# A sanitized program takes several times as long.
set(gantry_test_seconds 600)
if(GANTRY_SANITIZE)
  set(gantry_test_seconds 3600)
endif()

# Every entry is quick until gantry_long_tests says otherwise. It runs in a folder of its own, for others run beside it.
function(_gantry_test_properties name cores)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/entries/${name})
  file(MAKE_DIRECTORY ${folder})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${gantry_test_seconds} PROCESSORS ${cores} SKIP_RETURN_CODE 77 LABELS "${ARGN};quick"
                       ENVIRONMENT "${test_environment}" WORKING_DIRECTORY ${folder})
endfunction()

# Those entries of a list that this build has; a name that the full build lacks is an error.
function(_gantry_entries result)
  set(here "")
  foreach(name ${ARGN})
    if(TEST ${name})
      list(APPEND here ${name})
    elseif(GANTRY_WITH_MPI AND NOT GANTRY_SANITIZE)
      message(FATAL_ERROR "tests/CMakeLists.txt names the entry '${name}', which there is not")
    endif()
  endforeach()
  set(${result} ${here} PARENT_SCOPE)
endfunction()

# gantry_test_cores(CORES ENTRY...): the number of cores that ctest -j reserves for each entry; on a machine with fewer, an entry runs
# alone. Call it after gantry_long_tests: these entries start first of all. Later they would wait until several cores are free at
# once, which happens only after all entries of one core.
function(gantry_test_cores cores)
  _gantry_entries(entries ${ARGN})
  set_tests_properties(${entries} PROPERTIES PROCESSORS ${cores} COST 2000)
endfunction()

# gantry_tests_alone(ENTRY...): nothing else runs meanwhile.
function(gantry_tests_alone)
  _gantry_entries(entries ${ARGN})
  set_tests_properties(${entries} PROPERTIES RUN_SERIAL ON)
endfunction()

# gantry_test_timeout(SECONDS ENTRY...): those whose form under GANTRY_LONG=1 takes longer than ten minutes.
function(gantry_test_timeout seconds)
  _gantry_entries(entries ${ARGN})
  set_tests_properties(${entries} PROPERTIES TIMEOUT ${seconds})
endfunction()

# gantry_long_tests(ENTRY...): left out of `./dev test quick`, and started before the quick ones.
function(gantry_long_tests)
  _gantry_entries(entries ${ARGN})
  foreach(name ${entries})
    get_test_property(${name} LABELS labels)
    list(REMOVE_ITEM labels quick)
    set_tests_properties(${name} PROPERTIES LABELS "${labels};long" COST 1000)
  endforeach()
endfunction()

# gantry_script_test(ENTRY SCRIPT ARGUMENT...): a script of tests/consumer. They build programs: two cores each.
function(gantry_script_test name script)
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/consumer/${script} ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 1800 PROCESSORS 2 LABELS "consumer;long" COST 2000)
endfunction()
