# find_package(dsv4_npu_ops) after find_package(Torch): the target dsv4_npu_ops::ops, and where the libraries lie that a
# program loads (docs/cpp.md). CMAKE_PREFIX_PATH has `python -c "import dsv4_npu_ops; print(dsv4_npu_ops.cmake_prefix_path)"`.
get_filename_component(_dsv4_package "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(DSV4_NPU_OPS_LIBRARY "${_dsv4_package}/_C.abi3.so")
set(DSV4_NPU_OPS_NPU_LIBRARY "${_dsv4_package}/libdsv4_npu.so") # only in a package that was built for NPUs

if(NOT EXISTS "${DSV4_NPU_OPS_LIBRARY}")
  set(dsv4_npu_ops_FOUND FALSE)
  set(dsv4_npu_ops_NOT_FOUND_MESSAGE "${DSV4_NPU_OPS_LIBRARY} does not exist: the package is not built")
  return()
endif()
if(NOT DEFINED TORCH_LIBRARIES)
  set(dsv4_npu_ops_FOUND FALSE)
  set(dsv4_npu_ops_NOT_FOUND_MESSAGE "find_package(Torch REQUIRED) comes first")
  return()
endif()

if(NOT TARGET dsv4_npu_ops::ops)
  add_library(dsv4_npu_ops::ops INTERFACE IMPORTED)
  set_target_properties(
    dsv4_npu_ops::ops
    PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_dsv4_package}/include"
               INTERFACE_COMPILE_FEATURES cxx_std_20
               INTERFACE_COMPILE_DEFINITIONS "DSV4_NPU_OPS_LIBRARY=\"${DSV4_NPU_OPS_LIBRARY}\""
               INTERFACE_LINK_LIBRARIES "${TORCH_LIBRARIES};${CMAKE_DL_LIBS}")
endif()
unset(_dsv4_package)
