# What `cmake --install` puts where: libraries, headers, a CMake package and pkg-config files.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# install_library(<target> <pkg-config name> EXPORT <set> INCLUDE <folder> DESCRIPTION <text>
#                 [REQUIRES <pkg-config name>…] [LIBS <flag>…])
function(install_library target name)
  cmake_parse_arguments(PARSE_ARGV 2 pc "" "EXPORT;INCLUDE;DESCRIPTION" "REQUIRES;LIBS")
  install(TARGETS ${target} EXPORT ${pc_EXPORT})
  install(DIRECTORY ${pc_INCLUDE}/ TYPE INCLUDE)
  # Relative, so that the prefix may be moved.
  file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  list(JOIN pc_REQUIRES " " pc_REQUIRES)
  list(JOIN pc_LIBS " " pc_LIBS)
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/library.pc.in ${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

# install_export(<set>): its targets become PolicyBridge::…, in <set>Targets.cmake.
function(install_export set)
  install(EXPORT ${set} NAMESPACE PolicyBridge:: FILE ${set}Targets.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/PolicyBridge)
endfunction()

function(install_package)
  set(destination ${CMAKE_INSTALL_LIBDIR}/cmake/PolicyBridge)
  configure_package_config_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/PolicyBridgeConfig.cmake.in PolicyBridgeConfig.cmake
    INSTALL_DESTINATION ${destination})
  write_basic_package_version_file(PolicyBridgeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/PolicyBridgeConfig.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/PolicyBridgeConfigVersion.cmake
    ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/PolicyBridgeDecisions.cmake
    ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/PolicyBridgeLauncher.cmake
    ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/PolicyBridgeToolchain.cmake
    DESTINATION ${destination} COMPONENT run)
endfunction()
