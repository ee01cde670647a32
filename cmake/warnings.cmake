# Warnings for the project's own sources; torch's headers are included as system headers.
function(dsv4_enable_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wno-unused-parameter)
endfunction()
