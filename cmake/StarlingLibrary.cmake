# starling_library(<layer> [TORCH] SOURCES … [LINK …] [PRIVATE_LINK …])
#   The static library starling::<layer> from src/<layer>. Third-party headers that only one or two
#   .cc files may see go to PRIVATE_LINK. TORCH: unity build, libtorch's include path, light debug
#   information (a torch translation unit costs its headers, not its code).
# starling_test(<name> [TORCH] SOURCES … [LINK …] [LABELS …])
#   A Catch2 binary, every TEST_CASE of which is a ctest test (label "fast" unless LABELS say
#   otherwise). A test that cannot run here uses Catch2's SKIP("reason").
set(STARLING_WARNINGS -Wall -Wextra -Werror -Wno-missing-field-initializers)

function(starling_torch_target target)
  target_link_libraries(${target} PRIVATE LibTorch::torch)
  target_compile_options(${target} PRIVATE -g1)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
endfunction()

function(starling_library layer)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(starling_${layer} STATIC ${ARG_SOURCES})
  add_library(starling::${layer} ALIAS starling_${layer})
  target_include_directories(starling_${layer} PUBLIC ${CMAKE_SOURCE_DIR}/include
                                               PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(starling_${layer} PRIVATE ${STARLING_WARNINGS})
  target_link_libraries(starling_${layer} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
  if(ARG_TORCH)
    starling_torch_target(starling_${layer})
  endif()
endfunction()

function(starling_test name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LINK;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src
                                             ${CMAKE_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE ${STARLING_WARNINGS})
  target_compile_definitions(${name} PRIVATE STARLING_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(ARG_TORCH)
    starling_torch_target(${name})
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LINK} Catch2::Catch2WithMain)
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  endif()
  # Tests of real processes measure time: nothing may run beside them.
  set(serial FALSE)
  if("multiproc" IN_LIST ARG_LABELS)
    set(serial TRUE)
  endif()
  set(timeout_s 300)
  if(STARLING_SANITIZE)
    set(timeout_s 1200)
  endif()
  catch_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${name}: "
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${timeout_s} SKIP_RETURN_CODE 4 RUN_SERIAL ${serial}
               ENVIRONMENT "OMP_NUM_THREADS=1")
  set_property(GLOBAL APPEND PROPERTY STARLING_TESTS ${name})
endfunction()
