# ascend_sim_add_kernels(<target> SOURCES <kernel.cpp>... [INCLUDE_DIRS <dir>...] [CXX_STANDARD 17|20]
#                        [INCLUDE_FIRST <header>...])
#
# Builds the shared library <target> from Ascend C sources against the device simulator, with a launch function
# aclrtlaunch_<kernel> for every kernel. The generated aclrtlaunch_<kernel>.h are in the target's include directories.
function(ascend_sim_add_kernels target)
    # Found here and not above: callers in other folders do not see this file's variables.
    find_package(Python3 COMPONENTS Interpreter REQUIRED)
    set(generator "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../generate_stubs.py")
    cmake_parse_arguments(ARG "" "CXX_STANDARD" "SOURCES;INCLUDE_DIRS;INCLUDE_FIRST" ${ARGN})
    set(out "${CMAKE_CURRENT_BINARY_DIR}/${target}_launch")
    set(include_options)
    foreach(dir IN LISTS ARG_INCLUDE_DIRS)
        list(APPEND include_options --include-dir "${dir}")
    endforeach()
    set(headers)
    foreach(dir IN LISTS ARG_INCLUDE_DIRS)
        file(GLOB_RECURSE found CONFIGURE_DEPENDS "${dir}/*.h")
        list(APPEND headers ${found})
    endforeach()
    add_custom_command(
        OUTPUT "${out}/launch_stubs.cpp"
        COMMAND "${Python3_EXECUTABLE}" "${generator}" --out "${out}" --compiler "${CMAKE_CXX_COMPILER}"
                ${include_options} ${ARG_SOURCES}
        DEPENDS "${generator}" ${ARG_SOURCES} ${headers}
        COMMENT "Launch stubs of ${target}"
        VERBATIM)
    add_library(${target} SHARED ${ARG_SOURCES} "${out}/launch_stubs.cpp")
    target_include_directories(${target} PRIVATE ${ARG_INCLUDE_DIRS} PUBLIC "${out}")
    target_link_libraries(${target} PUBLIC ascend_sim)
    if(NOT ARG_CXX_STANDARD)
        set(ARG_CXX_STANDARD 17)
    endif()
    target_compile_features(${target} PRIVATE cxx_std_${ARG_CXX_STANDARD})
    # What a toolkit's build would put before every kernel, a tiling struct for example.
    foreach(header IN LISTS ARG_INCLUDE_FIRST)
        target_compile_options(${target} PRIVATE "SHELL:-include \"${header}\"")
    endforeach()
    # Line tables let an error name every kernel line that led to it.
    target_compile_options(${target} PRIVATE -Wall -Wextra -g1)
    # Every basic block tells the time model that it runs.
    set_source_files_properties(${ARG_SOURCES} PROPERTIES COMPILE_OPTIONS -fsanitize-coverage=trace-pc)
    set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
endfunction()
