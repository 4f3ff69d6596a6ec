# What the front program says of its build, the template of `gantry init`, completions and the manual page, made by the program
# itself, and the Debian package (cpack -G DEB).
target_compile_definitions(gantry_front_parts PRIVATE GANTRY_BUILD_TYPE="${CMAKE_BUILD_TYPE}" GANTRY_TORCH_ROOT="${LibTorch_ROOT}"
  GANTRY_TORCH_VERSION="${LibTorch_VERSION}" GANTRY_COMPILER="${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")

# A source file with the texts of a folder of cli/init, for `gantry init`.
function(gantry_init_template folder_name function output)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/cli/init/${folder_name})
  file(GLOB names CONFIGURE_DEPENDS RELATIVE ${folder} ${folder}/*)
  set(text "// Made by CMake of cli/init/${folder_name}.\n#include \"gantry/cli/init_command.h\"\n\nnamespace gantry::cli {\n")
  string(APPEND text "const std::vector<TemplateFile>& ${function}() {\n  static const std::vector<TemplateFile> files = {\n")
  foreach(name ${names})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/${name})
    file(READ ${folder}/${name} content)
    string(APPEND text "      {\"${name}\", R\"gantry~(${content})gantry~\"},\n")
  endforeach()
  file(GENERATE OUTPUT ${output} CONTENT "${text}  };\n  return files;\n}\n}  // namespace gantry::cli\n")
endfunction()

gantry_init_template(template project_template ${CMAKE_BINARY_DIR}/generated/init_template.cpp)
gantry_init_template(family family_template ${CMAKE_BINARY_DIR}/generated/init_family.cpp)
gantry_init_template(samples samples_template ${CMAKE_BINARY_DIR}/generated/init_samples.cpp)
target_sources(gantry_front_parts PRIVATE ${CMAKE_BINARY_DIR}/generated/init_template.cpp
                                          ${CMAKE_BINARY_DIR}/generated/init_samples.cpp
                                          ${CMAKE_BINARY_DIR}/generated/init_family.cpp)

set(shared ${CMAKE_BINARY_DIR}/share)
set(made "")
function(gantry_output path)
  get_filename_component(folder ${shared}/${path} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${shared}/${path} COMMAND gantry_front ${ARGN} > ${shared}/${path}
                     DEPENDS gantry_front VERBATIM)
  set(made ${made} ${shared}/${path} PARENT_SCOPE)
endfunction()
gantry_output(bash-completion/completions/gantry completion bash)
gantry_output(zsh/vendor-completions/_gantry completion zsh)
gantry_output(fish/vendor_completions.d/gantry.fish completion fish)
gantry_output(man/man1/gantry.1 manual)
add_custom_target(gantry_shell_files ALL DEPENDS ${made})
install(DIRECTORY ${shared}/ DESTINATION ${CMAKE_INSTALL_DATADIR})
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gantry)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "Gantry")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains transformer models over tensor, pipeline, context, data and expert parallel ranks")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Programs, libraries and headers. LibTorch ${LibTorch_VERSION}, which training needs, is not among Debian's packages: `gantry doctor` says whether it is found, and docs/install.md how to get it.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES TRUE)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-venv, g++, cmake, libfmt-dev, nlohmann-json3-dev")
if(GANTRY_WITH_MPI)
  string(APPEND CPACK_DEBIAN_PACKAGE_RECOMMENDS ", openmpi-bin")
endif()
# LibTorch comes from outside: what is linked against it is looked up there, and gives no dependency.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${LibTorch_ROOT}/lib ${CMAKE_BINARY_DIR}/lib)
if(NCCL_LIBRARY)
  get_filename_component(nccl_folder ${NCCL_LIBRARY} DIRECTORY)
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${nccl_folder})
endif()
# The folder that Gantry was built with means nothing on another machine.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/package_rpath.cmake)
include(CPack)
