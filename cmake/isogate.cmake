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

# isogate_test(name sources… LINK libs…): one GoogleTest binary, registered with ctest.
function(isogate_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS} ${ISOGATE_SANITIZER_OPTIONS})
  target_link_libraries(${name} PRIVATE isogate_flags GTest::gtest GTest::gmock GTest::gtest_main ${ARG_LINK})
  target_compile_definitions(${name} PRIVATE ISOGATE_BUILD_DIR="${CMAKE_BINARY_DIR}"
    ISOGATE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
endfunction()
