# policybridge_find_launcher(): set POLICYBRIDGE_RUN to the program policybridge-run, which is beside this package or on PATH.
function(policybridge_find_launcher)
  # Where it was found before there may be none any more.
  if(POLICYBRIDGE_RUN AND NOT EXISTS "${POLICYBRIDGE_RUN}")
    unset(POLICYBRIDGE_RUN CACHE)
  endif()
  # The package is in lib/cmake/PolicyBridge, or in a folder of the architecture in lib.
  set(prefix ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../../..)
  find_program(POLICYBRIDGE_RUN policybridge-run HINTS "${prefix}/bin" "${prefix}/../bin" NO_CMAKE_FIND_ROOT_PATH)
  if(NOT POLICYBRIDGE_RUN)
    message(FATAL_ERROR "there is no policybridge-run (docs/install.md); `policybridge doctor` tells what is missing")
  endif()
endfunction()
