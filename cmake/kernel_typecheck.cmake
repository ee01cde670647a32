# Type-checks every kernel against the headers of a CANN toolkit with the host compiler, in the toolkit's CPU-debug mode.
# The device compiler is not needed, nothing is linked and nothing runs. The toolkit's script that makes launch functions of
# kernel signatures is run too, and must read them as tests/ascend_sim/generate_stubs.py does.
#
#   make typecheck CANN_HOME=<folder of the toolkit>
set(DSV4_CANN_HOME "" CACHE PATH "CANN toolkit whose headers the kernels are type-checked against")

if(NOT DSV4_CANN_HOME)
  add_custom_target(typecheck_kernels COMMAND ${CMAKE_COMMAND} -E echo "skipped: DSV4_CANN_HOME names no CANN toolkit")
  return()
endif()

file(GLOB_RECURSE kernel_operator ${DSV4_CANN_HOME}/kernel_operator.h)
file(GLOB_RECURSE cpu_debug ${DSV4_CANN_HOME}/tikicpulib.h)
file(GLOB_RECURSE acl_base ${DSV4_CANN_HOME}/acl_base.h)
foreach(found kernel_operator cpu_debug acl_base)
  if(NOT ${found})
    message(FATAL_ERROR "DSV4_CANN_HOME is ${DSV4_CANN_HOME}, expected a CANN toolkit; it lacks the header for ${found}")
  endif()
  list(GET ${found} 0 ${found})
  cmake_path(GET ${found} PARENT_PATH ${found}_dir)
endforeach()
cmake_path(GET kernel_operator_dir PARENT_PATH toolkit_include_dir)
cmake_path(GET acl_base_dir PARENT_PATH acl_include_dir)

add_custom_target(
  typecheck_signatures
  COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/tests/ascend_sim/compare_toolkit_stubs.py ${DSV4_CANN_HOME}
  VERBATIM)

file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/csrc/ops/*/*_kernel.cpp)
add_library(typecheck_kernels OBJECT EXCLUDE_FROM_ALL ${kernels})
add_dependencies(typecheck_kernels typecheck_signatures)
set_target_properties(typecheck_kernels PROPERTIES CXX_STANDARD 17)
target_include_directories(typecheck_kernels PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/csrc)
target_include_directories(
  typecheck_kernels SYSTEM
  PRIVATE ${cpu_debug_dir}
          ${kernel_operator_dir}
          ${kernel_operator_dir}/interface
          ${kernel_operator_dir}/impl
          ${toolkit_include_dir}
          ${toolkit_include_dir}/highlevel_api
          ${toolkit_include_dir}/highlevel_api/impl
          ${acl_include_dir})
# Atlas A2 and A3, vector core.
target_compile_definitions(typecheck_kernels PRIVATE ASCENDC_CPU_DEBUG=1 __CCE_KT_TEST__=1 __CCE_AICORE__=220
                                                     __DAV_C220_VEC__ TILING_KEY_VAR=0)
# Unoptimised: optimising makes the toolkit's own headers warn.
target_compile_options(typecheck_kernels PRIVATE -Wall -Wextra -O0)
