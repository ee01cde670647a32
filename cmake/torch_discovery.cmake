# Finds the torch to build against and offers it as a target, dsv4_torch, with its release (as in 2.10) in
# DSV4_TORCH_RELEASE; and Python's headers, as dsv4_python. Nothing of torch is imported or run, so it may be one for
# another processor.
# find_package(Torch) is not used: it drags every CUDA and MKL probe along for four libraries and two folders.
set(DSV4_TORCH_DIR "" CACHE PATH "Folder of the torch package; where it is empty, the one of Python_EXECUTABLE")
set(DSV4_PYTHON_INCLUDE_DIR "" CACHE PATH "Folder of Python.h; where it is empty, the one of Python_EXECUTABLE")

# It need not be the Python that imports the package: the stable ABI is the same in all of them.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)

function(dsv4_ask_python result code)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "${code}" OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE
                                                                            COMMAND_ERROR_IS_FATAL ANY)
  set(${result} "${answer}" PARENT_SCOPE)
endfunction()

set(torch_dir "${DSV4_TORCH_DIR}")
if(NOT torch_dir)
  dsv4_ask_python(torch_dir "from importlib.util import find_spec as f; s = f('torch'); print(s.submodule_search_locations[0] if s else '')")
  if(NOT torch_dir)
    message(FATAL_ERROR "torch is not installed in ${Python_EXECUTABLE}, expected torch 2.8 to 2.15")
  endif()
endif()
if(NOT EXISTS "${torch_dir}/version.py")
  message(FATAL_ERROR "DSV4_TORCH_DIR is '${torch_dir}', expected the folder of a torch package; it has no version.py")
endif()
file(STRINGS "${torch_dir}/version.py" torch_version REGEX "^__version__ = ")
string(REGEX REPLACE "^__version__ = '([0-9]+[.][0-9]+).*$" "\\1" DSV4_TORCH_RELEASE "${torch_version}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${torch_dir}/version.py")

add_library(dsv4_torch INTERFACE)
target_include_directories(dsv4_torch SYSTEM INTERFACE ${torch_dir}/include
                                                       ${torch_dir}/include/torch/csrc/api/include)
foreach(name c10 torch_cpu torch)
  if(NOT EXISTS "${torch_dir}/lib/lib${name}.so")
    message(FATAL_ERROR "torch at ${torch_dir} has no lib/lib${name}.so")
  endif()
  target_link_libraries(dsv4_torch INTERFACE "${torch_dir}/lib/lib${name}.so")
endforeach()

set(python_include_dir "${DSV4_PYTHON_INCLUDE_DIR}")
if(NOT python_include_dir)
  dsv4_ask_python(python_include_dir "import sysconfig; print(sysconfig.get_path('include'))")
endif()
if(NOT EXISTS "${python_include_dir}/Python.h")
  message(FATAL_ERROR "${python_include_dir} has no Python.h: install Python's headers (Debian: python3-dev)")
endif()
add_library(dsv4_python INTERFACE)
target_include_directories(dsv4_python SYSTEM INTERFACE ${python_include_dir})
target_compile_definitions(dsv4_python INTERFACE Py_LIMITED_API=0x030A0000)
