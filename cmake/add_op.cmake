# dsv4_add_op(<op>) adds csrc/ops/<op>: the schema with its checks, and the CPU loops with their registration.
function(dsv4_add_op op)
  set(dir ${CMAKE_CURRENT_SOURCE_DIR}/csrc/ops/${op})
  dsv4_compile_together(${op} ${dir}/${op}.cpp ${dir}/${op}_cpu.cpp)
endfunction()

# Adds sources to the extension that are compiled as one. Every unit instantiates what torch's headers leave pending,
# which takes longer than most of our files.
function(dsv4_compile_together group)
  target_sources(_C PRIVATE ${ARGN})
  set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${group})
endfunction()
