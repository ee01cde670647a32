# Finds the torch and pybind11 of the Python that builds the package and offers them as one target, dsv4_torch.
# find_package(Torch) is not used: it drags every CUDA and MKL probe along for four libraries and two folders.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

execute_process(
  COMMAND
    ${Python_EXECUTABLE} -c
    "import pybind11, torch; from torch.utils import cpp_extension as c; print(torch.__path__[0]); print(pybind11.get_cmake_dir()); print(int(torch.compiled_with_cxx11_abi()))"
  OUTPUT_VARIABLE found
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" found "${found}")
list(GET found 0 torch_dir)
list(GET found 1 pybind11_DIR)
list(GET found 2 torch_cxx11_abi)

find_package(pybind11 CONFIG REQUIRED)

add_library(dsv4_torch INTERFACE)
target_include_directories(dsv4_torch SYSTEM INTERFACE ${torch_dir}/include
                                                       ${torch_dir}/include/torch/csrc/api/include)
target_compile_definitions(dsv4_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${torch_cxx11_abi})
foreach(name c10 torch_cpu torch)
  find_library(torch_${name}_library ${name} PATHS ${torch_dir}/lib NO_DEFAULT_PATH REQUIRED)
  target_link_libraries(dsv4_torch INTERFACE ${torch_${name}_library})
endforeach()
