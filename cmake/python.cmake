# What the Python module is built with: an interpreter and its nanobind.
find_package(Python 3.10 COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule REQUIRED)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
                OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE nanobind_missing)
if(nanobind_missing)
  message(FATAL_ERROR "${Python_EXECUTABLE} has no nanobind. Install it there (pip install nanobind), or choose another "
                      "by -DPython_EXECUTABLE=...")
endif()
find_package(nanobind CONFIG REQUIRED)
# oneDNN's package lies in the lib folder of the environment that has nanobind: PREFIX/lib/pythonX.Y/site-packages.
cmake_path(SET nanobind_prefix NORMALIZE ${nanobind_ROOT}/../../../../..)
list(APPEND CMAKE_PREFIX_PATH ${nanobind_prefix})
