# Flags and helpers for every target of the project.

add_library(isogate_flags INTERFACE)
# A designated initializer leaves the other members at their defaults on purpose.
target_compile_options(isogate_flags INTERFACE -Wall -Wextra -Werror -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in std::string where there are none (GCC bug 105651).
  target_compile_options(isogate_flags INTERFACE -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15)
  # Clang 14 has coroutines in namespace std, and does not say so to the library.
  target_compile_definitions(isogate_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:__cpp_impl_coroutine=201902L>)
endif()
target_include_directories(isogate_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/sdk/include)
target_compile_definitions(isogate_flags INTERFACE ISOGATE_VERSION="${PROJECT_VERSION}")
if(CMAKE_BUILD_TYPE STREQUAL "Release" OR CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  target_compile_options(isogate_flags INTERFACE -fstack-protector-strong)
  target_compile_definitions(isogate_flags INTERFACE _FORTIFY_SOURCE=2)
  target_link_options(isogate_flags INTERFACE -Wl,-z,relro -Wl,-z,now)
endif()
if(ISOGATE_SANITIZE)
  # -O1: at -O2 GCC takes ten times as long, and warns of what is not there.
  add_compile_options(-fsanitize=${ISOGATE_SANITIZE} -fno-omit-frame-pointer -O1 -g1)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)  # instrumented code confuses it (GCC bug 105562)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND ISOGATE_SANITIZE STREQUAL "thread")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)  # Asio has fences, which it does not follow
  endif()
  add_link_options(-fsanitize=${ISOGATE_SANITIZE})
  set(ISOGATE_SANITIZER_OPTIONS ${CMAKE_SOURCE_DIR}/cmake/sanitizer_options.c)
endif()

# isogate_library(name sources… LINK libs…): a static library of one folder.
function(isogate_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC isogate_flags ${ARG_LINK})
endfunction()

# isogate_plugin(name sources… LINK libs…): one .so that exports isogate_plugin_entry alone.
function(isogate_plugin name)
  cmake_parse_arguments(ARG "" "OUTPUT_DIR" "LINK" ${ARGN})
  add_library(${name} MODULE ${ARG_UNPARSED_ARGUMENTS})
  if(NOT ARG_OUTPUT_DIR)
    set(ARG_OUTPUT_DIR ${ISOGATE_PLUGIN_DIR})
  endif()
  string(REGEX REPLACE "^plugin_" "" file ${name})
  set_target_properties(${name} PROPERTIES PREFIX "" OUTPUT_NAME ${file}
    LIBRARY_OUTPUT_DIRECTORY ${ARG_OUTPUT_DIR})
  target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,now
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/sdk/plugin.map)
  if(NOT ISOGATE_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
  target_link_libraries(${name} PRIVATE isogate_flags ${ARG_LINK})
endfunction()

# isogate_run(name [LOCK lock] [WITH_ENGINE] [TIMEOUT seconds] COMMAND …): one test of ctest, which runs several beside
# each other. Those of one lock wait for each other: `docker`, `podman` and `cluster` are one engine's, `machine` runs
# beside nothing. All but these, and those WITH_ENGINE, see their own processes alone.
function(isogate_run name)
  cmake_parse_arguments(ARG "WITH_ENGINE" "LOCK;TIMEOUT" "COMMAND" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set(alone ${CMAKE_SOURCE_DIR}/tests/alone.sh)
  if(ARG_WITH_ENGINE OR ARG_LOCK MATCHES "^(docker|podman|cluster|machine)$")
    set(alone)
  endif()
  list(POP_FRONT ARG_COMMAND program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  add_test(NAME ${name} COMMAND ${alone} ${program} ${ARG_COMMAND})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST ${ARG_TIMEOUT})  # the longest first
  if(ARG_LOCK STREQUAL "machine")
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  elseif(ARG_LOCK)
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK ${ARG_LOCK})
  endif()
  if(ARG_LOCK STREQUAL "cluster")
    set_tests_properties(${name} PROPERTIES LABELS cluster)
  endif()
endfunction()

# isogate_test(name sources… LINK libs… [SHARDS n] [LOCK lock] [WITH_ENGINE] [TIMEOUT seconds]): one GoogleTest binary,
# registered with ctest, whole or in n parts.
function(isogate_test name)
  cmake_parse_arguments(ARG "WITH_ENGINE" "LOCK;TIMEOUT;SHARDS" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS} ${ISOGATE_SANITIZER_OPTIONS})
  target_link_libraries(${name} PRIVATE isogate_flags GTest::gtest GTest::gmock GTest::gtest_main ${ARG_LINK})
  target_include_directories(${name} PRIVATE ${CMAKE_BINARY_DIR}/tests/dirs)
  set(run)
  if(ARG_WITH_ENGINE)
    set(run WITH_ENGINE)
  endif()
  list(APPEND run LOCK ${ARG_LOCK} TIMEOUT ${ARG_TIMEOUT} COMMAND ${name} --gtest_brief=1)
  if(NOT ARG_SHARDS)
    isogate_run(${name} ${run})
    return()
  endif()
  math(EXPR last "${ARG_SHARDS} - 1")
  foreach(shard RANGE ${last})
    isogate_run(${name}_${shard} ${run})
    set_tests_properties(${name}_${shard} PROPERTIES
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()
