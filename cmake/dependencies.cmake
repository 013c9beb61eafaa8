# What the library is built on. scripts/setup installs all of it: Debian's packages, and oneDNN into .deps/.
list(APPEND CMAKE_PREFIX_PATH ${PROJECT_SOURCE_DIR}/.deps)

find_package(dnnl 3.2 CONFIG QUIET)
if(NOT dnnl_FOUND)
  message(FATAL_ERROR "oneDNN 3.2 or later was not found. Run scripts/setup, which puts it into .deps/, or give its prefix by "
                      "-DCMAKE_PREFIX_PATH=...")
endif()
find_package(hwy 1.0.3 CONFIG REQUIRED)
find_package(fmt 9 CONFIG REQUIRED)
find_package(nlohmann_json 3.11 CONFIG REQUIRED)
find_package(CLI11 2.1 CONFIG REQUIRED)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
find_package(ZLIB REQUIRED)
find_package(Threads REQUIRED)

add_library(everyo_dependencies INTERFACE)
target_link_libraries(everyo_dependencies INTERFACE DNNL::dnnl hwy::hwy fmt::fmt nlohmann_json::nlohmann_json OpenSSL::Crypto ZLIB::ZLIB
                                                    Threads::Threads)
# GCC's OpenMP with either compiler: oneDNN's build uses it, and is told to stay on one thread.
target_link_libraries(everyo_dependencies INTERFACE gomp)
