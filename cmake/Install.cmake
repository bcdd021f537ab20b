# An installed tree that find_package(pipedream) understands: libraries, headers, targets and the packages they need.
include(CMakePackageConfigHelpers)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/pipedream DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
install(EXPORT pipedream-targets NAMESPACE pipedream:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/pipedream)
configure_package_config_file(cmake/pipedream-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/pipedream-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/pipedream)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/pipedream-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/pipedream-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/pipedream-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/pipedream)
