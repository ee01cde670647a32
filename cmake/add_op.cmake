# dsv4_add_op(<op>) adds csrc/ops/<op>: the schema with its checks, and the CPU loops with their registration.
function(dsv4_add_op op)
  set(dir ${CMAKE_CURRENT_SOURCE_DIR}/csrc/ops/${op})
  target_sources(_C PRIVATE ${dir}/${op}.cpp ${dir}/${op}_cpu.cpp)
endfunction()
