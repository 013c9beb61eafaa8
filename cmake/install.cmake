# `cmake --install build` gives a tree that another project finds with find_package(everyo). oneDNN's library goes
# beside ours when it is not the system's, so the tree works without .deps/.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/everyo)

install(TARGETS everyo EXPORT everyo_targets)
install(DIRECTORY include/everyo DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(TARGET everyo_cli)
  install(TARGETS everyo_cli)
endif()
install(FILES data/digits.csv data/README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/everyo)
install(DIRECTORY data/verify DESTINATION ${CMAKE_INSTALL_DATADIR}/everyo)

get_target_property(onednn_library DNNL::dnnl IMPORTED_LOCATION_RELEASE)
get_target_property(onednn_soname DNNL::dnnl IMPORTED_SONAME_RELEASE)
if(onednn_library AND onednn_soname AND NOT onednn_library MATCHES "^/usr/")
  install(FILES ${onednn_library} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME ${onednn_soname})
endif()

install(EXPORT everyo_targets NAMESPACE everyo:: DESTINATION ${package_dir})
configure_package_config_file(cmake/everyo-config.cmake.in everyo-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(everyo-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/everyo-config.cmake ${PROJECT_BINARY_DIR}/everyo-config-version.cmake
        DESTINATION ${package_dir})
