# Headers keep the shape they have in the tree: include/gantry/core/mesh.h.
install(TARGETS gantry EXPORT GantryTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(folder core tensors comm nn models policies schedule checkpoint data plugins booster)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gantry FILES_MATCHING PATTERN "*.h")
endforeach()
target_include_directories(gantry PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                                         $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include>)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Gantry)
install(EXPORT GantryTargets NAMESPACE gantry:: DESTINATION ${package_dir})
install(FILES cmake/FindLibTorch.cmake DESTINATION ${package_dir})
include(CMakePackageConfigHelpers)
configure_package_config_file(cmake/GantryConfig.cmake.in ${CMAKE_BINARY_DIR}/GantryConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/GantryConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/GantryConfig.cmake ${CMAKE_BINARY_DIR}/GantryConfigVersion.cmake DESTINATION ${package_dir})
