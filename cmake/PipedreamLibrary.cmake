# The warnings every file of ours is compiled with. Torch's own headers come in as SYSTEM headers.
add_library(pipedream_warnings INTERFACE)
# -Wno-restrict: g++ 12 reports a false overlap for `"text" + std::string` at -O3 (GCC bug 105651).
target_compile_options(pipedream_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${PIPEDREAM_WARNINGS_AS_ERRORS}>:-Werror>)

# pipedream_library(plan SOURCES a.cpp ... DEPS pipedream::core ... PRIVATE_DEPS fmt::fmt ... [TORCH])
# One library a part. TORCH: links libtorch and compiles the part as one translation unit, because a libtorch header costs 10-40 s
# whichever number of files includes it.
function(pipedream_library name)
  cmake_parse_arguments(A "TORCH" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(pipedream_${name} STATIC ${A_SOURCES})
  add_library(pipedream::${name} ALIAS pipedream_${name})
  target_include_directories(pipedream_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(pipedream_${name} PUBLIC cxx_std_20)
  target_link_libraries(pipedream_${name} PUBLIC ${A_DEPS} PRIVATE ${A_PRIVATE_DEPS} $<BUILD_INTERFACE:pipedream_warnings>)
  set_target_properties(pipedream_${name} PROPERTIES EXPORT_NAME ${name})
  if(A_TORCH)
    target_link_libraries(pipedream_${name} PUBLIC pipedream_torch)
    set_target_properties(pipedream_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  install(TARGETS pipedream_${name} EXPORT pipedream-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# pipedream_test(plan SOURCES a_test.cpp ... DEPS pipedream::plan ... [TORCH] [SERIAL])
# One gtest program a part; every test becomes one ctest entry. They run in the project's root, so "../shared/data" is found from there.
function(pipedream_test name)
  cmake_parse_arguments(A "TORCH;SERIAL" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  add_executable(${name}_test ${A_SOURCES})
  target_link_libraries(${name}_test PRIVATE ${A_DEPS} GTest::gmock GTest::gtest_main rapidcheck pipedream_warnings)
  target_compile_options(${name}_test PRIVATE -O1)  # the last level wins: tests are compiled far more often than they run
  target_compile_definitions(${name}_test PRIVATE PIPEDREAM_SOURCE_DIR="${PROJECT_SOURCE_DIR}" PIPEDREAM_BINARY_DIR="${PROJECT_BINARY_DIR}")
  if(A_TORCH)
    target_link_libraries(${name}_test PRIVATE pipedream_torch)
    set_target_properties(${name}_test PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  set(properties TIMEOUT ${A_TIMEOUT} LABELS ${name})
  if(A_SERIAL)
    list(APPEND properties RUN_SERIAL ON)
  endif()
  gtest_discover_tests(${name}_test TEST_PREFIX ${name}. WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} DISCOVERY_TIMEOUT 60
    PROPERTIES ${properties})
endfunction()
