# Run by cpack between install and packing: in a package LibTorch is where `gantry` finds it, or in /opt/libtorch.
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX})
file(GLOB libraries ${root}/lib*/libgantry.so.*.*)
foreach(library ${libraries})
  file(RPATH_SET FILE ${library} NEW_RPATH "$ORIGIN:/opt/libtorch/lib")
endforeach()
file(RPATH_SET FILE ${root}/libexec/gantry/gantry-engine NEW_RPATH "$ORIGIN/../../lib:/opt/libtorch/lib")
