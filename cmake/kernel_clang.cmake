# Compiles the kernels and the device simulator with clang++, warnings as errors, without linking: the device's compiler
# is a clang too. Kernels see the simulator's headers.
find_program(DSV4_CLANG NAMES clang++ clang++-18 clang++-17 clang++-16 clang++-15 clang++-14)

if(NOT DSV4_CLANG)
  add_custom_target(clang_kernels COMMAND ${CMAKE_COMMAND} -E echo "skipped: there is no clang++")
  return()
endif()

file(GLOB clang_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/csrc/ops/*/*_kernel.cpp
     ${CMAKE_CURRENT_SOURCE_DIR}/bench/naive/*_kernel.cpp ${CMAKE_CURRENT_SOURCE_DIR}/tests/ascend_sim/src/*.cpp)
set(clang_objects)
foreach(source IN LISTS clang_sources)
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE name)
  set(object ${CMAKE_BINARY_DIR}/clang/${name}.o)
  cmake_path(GET object PARENT_PATH folder)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(
    OUTPUT ${object}
    COMMAND
      ${DSV4_CLANG} -std=c++17 -O1 -fPIC -Wall -Wextra -Werror -MD -MF ${object}.d -I
      ${CMAKE_CURRENT_SOURCE_DIR}/tests/ascend_sim/include -I ${CMAKE_CURRENT_SOURCE_DIR}/tests/ascend_sim/src -I
      ${CMAKE_CURRENT_SOURCE_DIR}/csrc -I ${CMAKE_CURRENT_SOURCE_DIR}/bench/naive -c ${source} -o ${object}
    DEPENDS ${source}
    DEPFILE ${object}.d
    COMMENT "clang++ ${name}"
    VERBATIM)
  list(APPEND clang_objects ${object})
endforeach()
add_custom_target(clang_kernels DEPENDS ${clang_objects})
