# For a project that is not changed: cmake -DCMAKE_TOOLCHAIN_FILE=…/PolicyBridgeToolchain.cmake. Its C and C++ are compiled
# with the decisions of policybridge.decisions, at the project's root.
find_program(POLICYBRIDGE_RUN policybridge-run HINTS ${CMAKE_CURRENT_LIST_DIR}/../../../bin NO_CMAKE_FIND_ROOT_PATH)
if(NOT POLICYBRIDGE_RUN)
  message(FATAL_ERROR "there is no policybridge-run (docs/install.md); `policybridge doctor` tells what is missing")
endif()
foreach(language C CXX)
  foreach(kind COMPILER LINKER)
    set(CMAKE_${language}_${kind}_LAUNCHER "${POLICYBRIDGE_RUN};--")
  endforeach()
endforeach()
