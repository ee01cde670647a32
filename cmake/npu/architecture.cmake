# What kernels are compiled for when they are for DSV4_SOC_VERSION: sets `architecture` and `architecture_kinds`, a pattern
# for every kind of NPU on which they run. The toolkit's own launch stubs ask no more than the architecture.
#
#   cmake -DDSV4_SOC_VERSION=ascend910_9391 -P architecture.cmake    says what it is
set(dav-2201_kinds "ascend910(b[1-9]|_93).*")  # Atlas A2 and A3; ascend910b without a digit is an older NPU
set(dav-3510_kinds "ascend950(pr|dt)_.*")  # Atlas A5, for which no device compiler has seen these kernels yet
set(architecture "")
foreach(candidate dav-2201 dav-3510)
  if(DSV4_SOC_VERSION MATCHES "^${${candidate}_kinds}$")
    set(architecture ${candidate})
    set(architecture_kinds "${${candidate}_kinds}")
  endif()
endforeach()
if(NOT architecture)
  message(FATAL_ERROR "DSV4_SOC_VERSION is '${DSV4_SOC_VERSION}', expected a kind of NPU as the toolkit spells it, such as "
                      "ascend910_9391 or ascend950pr_9599 (npu-smi info tells)")
endif()
message(STATUS "Kernels for ${DSV4_SOC_VERSION}: ${architecture}")
