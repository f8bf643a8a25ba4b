# policybridge_decisions(<target> [<store>]): compile the target's C and C++ with the decisions of a store, and link it with
# those for link time. The store is policybridge.decisions at the project's root if none is named; while there is none,
# nothing is changed. Other launchers, such as ccache, are started by ours.
find_program(POLICYBRIDGE_RUN policybridge-run HINTS ${PACKAGE_PREFIX_DIR}/bin)

function(policybridge_decisions target)
  set(store policybridge.decisions)
  if(ARGC GREATER 1)
    set(store "${ARGV1}")
  endif()
  get_filename_component(store "${store}" ABSOLUTE BASE_DIR "${PROJECT_SOURCE_DIR}")
  if(NOT EXISTS "${store}")
    message(STATUS "${target} is compiled without decisions: there is no ${store}. `policybridge autotune` makes it; "
      "then configure again")
    return()
  endif()
  if(NOT POLICYBRIDGE_RUN)
    message(FATAL_ERROR "there is no policybridge-run (docs/install.md); `policybridge doctor` tells what is missing")
  endif()
  set(launcher "${POLICYBRIDGE_RUN}" --decisions "${store}" --)
  foreach(language C CXX)
    foreach(kind COMPILER LINKER)
      set(words ${launcher})
      get_target_property(others ${target} ${language}_${kind}_LAUNCHER)
      if(others)
        list(APPEND words ${others})
      endif()
      set_property(TARGET ${target} PROPERTY ${language}_${kind}_LAUNCHER "${words}")
    endforeach()
  endforeach()
  # Objects of before are older than the store. Later the launcher names it in each object's list of dependencies.
  get_target_property(sources ${target} SOURCES)
  set_property(SOURCE ${sources} TARGET_DIRECTORY ${target} APPEND PROPERTY OBJECT_DEPENDS "${store}")
endfunction()
