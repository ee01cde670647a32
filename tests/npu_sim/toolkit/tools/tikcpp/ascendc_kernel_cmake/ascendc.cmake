# What a CANN toolkit's kernel project offers, as far as cmake/npu asks for it: kernels are compiled for the device
# simulator instead. Include directories are given after the library, so that it is made at the end of the directory.
function(ascendc_library target type)
  set_property(GLOBAL PROPERTY ${target}_sources ${ARGN})
  cmake_language(EVAL CODE "cmake_language(DEFER CALL add_simulated_kernels ${target})")
endfunction()

function(ascendc_include_directories target scope)
  set_property(GLOBAL PROPERTY ${target}_include_dirs ${ARGN})
endfunction()

function(ascendc_compile_definitions target scope)
  set_property(GLOBAL PROPERTY ${target}_definitions ${ARGN})
endfunction()

function(add_simulated_kernels target)
  get_property(sources GLOBAL PROPERTY ${target}_sources)
  get_property(include_dirs GLOBAL PROPERTY ${target}_include_dirs)
  ascend_sim_add_kernels(${target} SOURCES ${sources} INCLUDE_DIRS ${include_dirs})
  get_property(definitions GLOBAL PROPERTY ${target}_definitions)
  target_compile_definitions(${target} PRIVATE ${definitions})
  # aclrt* calls go to the simulated device.
  target_link_libraries(${target} PUBLIC ascend_device_sim)
endfunction()
