# find_package(ascend_sim): the target ascend_sim and the function ascend_sim_add_kernels.
include("${CMAKE_CURRENT_LIST_DIR}/ascend_sim-targets.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/ascend_sim_kernels.cmake")
