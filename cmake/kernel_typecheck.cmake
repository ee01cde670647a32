# Type-checks every kernel against the headers of a CANN toolkit with the host compiler, in the toolkit's CPU-debug mode.
# The device compiler is not needed, nothing is linked and nothing runs. The toolkit's script that makes launch functions of
# kernel signatures is run too, and must read them as tests/ascend_sim/generate_stubs.py does.
#
#   make typecheck CANN_HOME=<folder of the toolkit> [ARCHITECTURE=dav-3510]
set(DSV4_CANN_HOME "" CACHE PATH "CANN toolkit whose headers the kernels are type-checked against")
set(DSV4_ARCHITECTURE dav-2201 CACHE STRING "Architecture to check for: dav-2201 (Atlas A2, A3) or dav-3510 (Atlas A5)")

if(NOT DSV4_CANN_HOME)
  add_custom_target(typecheck_kernels COMMAND ${CMAKE_COMMAND} -E echo "skipped: DSV4_CANN_HOME names no CANN toolkit")
  return()
endif()

# What the device compiler defines for a vector core.
if(DSV4_ARCHITECTURE STREQUAL dav-2201)
  set(architecture_definitions __CCE_AICORE__=220 __DAV_C220_VEC__ __DAV_C220__ __NPU_ARCH__=2201)
elseif(DSV4_ARCHITECTURE STREQUAL dav-3510)
  set(architecture_definitions __CCE_AICORE__=310 __DAV_C310__ __DAV_VEC__ __NPU_ARCH__=3510)
else()
  message(FATAL_ERROR "DSV4_ARCHITECTURE is '${DSV4_ARCHITECTURE}', expected dav-2201 or dav-3510")
endif()

# CANN 9 has the headers below asc/, 8 below ascendc/.
file(GLOB_RECURSE kernel_operator ${DSV4_CANN_HOME}/*/asc/include/kernel_operator.h
     ${DSV4_CANN_HOME}/asc/include/kernel_operator.h)
if(NOT kernel_operator)
  file(GLOB_RECURSE kernel_operator ${DSV4_CANN_HOME}/kernel_operator.h)
endif()
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
if(toolkit_include_dir MATCHES "/asc$")
  set(kernel_include_dirs ${toolkit_include_dir})
  foreach(folder include impl)
    list(APPEND kernel_include_dirs ${toolkit_include_dir}/${folder})
    foreach(api adv_api basic_api c_api simt_api utils)
      list(APPEND kernel_include_dirs ${toolkit_include_dir}/${folder}/${api})
    endforeach()
  endforeach()
else()
  set(kernel_include_dirs
      ${kernel_operator_dir} ${kernel_operator_dir}/interface ${kernel_operator_dir}/impl ${toolkit_include_dir}
      ${toolkit_include_dir}/highlevel_api ${toolkit_include_dir}/highlevel_api/impl)
endif()

add_custom_target(
  typecheck_signatures
  COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/tests/ascend_sim/compare_toolkit_stubs.py ${DSV4_CANN_HOME}
          ${DSV4_ARCHITECTURE}
  VERBATIM)

file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/csrc/ops/*/*_kernel.cpp)
add_library(typecheck_kernels OBJECT EXCLUDE_FROM_ALL ${kernels})
add_dependencies(typecheck_kernels typecheck_signatures)
set_target_properties(typecheck_kernels PROPERTIES CXX_STANDARD 17)
target_include_directories(typecheck_kernels PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/csrc)
target_include_directories(
  typecheck_kernels SYSTEM PRIVATE ${cpu_debug_dir} ${kernel_include_dirs} ${acl_include_dir} ${acl_include_dir}/acl)
target_compile_definitions(typecheck_kernels PRIVATE ASCENDC_CPU_DEBUG=1 __CCE_KT_TEST__=1 TILING_KEY_VAR=0
                                                     ${architecture_definitions})
# Unoptimised: optimising makes the toolkit's own headers warn.
target_compile_options(typecheck_kernels PRIVATE -Wall -Wextra -O0)
