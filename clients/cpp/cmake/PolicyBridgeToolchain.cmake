# For a project that is not changed: cmake -DCMAKE_TOOLCHAIN_FILE=…/PolicyBridgeToolchain.cmake. Its C and C++ are compiled
# with the decisions of policybridge.decisions, at the project's root. Other launchers, such as ccache, are started by ours.
include("${CMAKE_CURRENT_LIST_DIR}/PolicyBridgeLauncher.cmake")
policybridge_find_launcher()
foreach(_policybridge_name C_COMPILER CXX_COMPILER C_LINKER CXX_LINKER)
  set(_policybridge_name CMAKE_${_policybridge_name}_LAUNCHER)
  set(_policybridge_others "${${_policybridge_name}}")
  if(NOT _policybridge_others)
    set(_policybridge_others "$ENV{${_policybridge_name}}")
  endif()
  # CMake reads this file several times.
  string(FIND "${_policybridge_others};" "${POLICYBRIDGE_RUN};" _policybridge_place)
  if(NOT _policybridge_place EQUAL 0)
    set(${_policybridge_name} "${POLICYBRIDGE_RUN}" --)
    if(_policybridge_others)
      list(APPEND ${_policybridge_name} ${_policybridge_others})
    endif()
  endif()
endforeach()
