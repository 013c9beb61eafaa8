# What the library is built on. scripts/setup installs all of it: Debian's packages; oneDNN, protobuf-lite and ONNX Runtime's
# headers into .deps/.
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
find_program(EVERYO_PROTOC protoc)
find_path(EVERYO_ONNX_PROTO onnx/onnx.proto)
find_library(EVERYO_PROTOBUF_LITE libprotobuf-lite.a PATHS ${PROJECT_SOURCE_DIR}/.deps/lib NO_DEFAULT_PATH)
find_path(EVERYO_PROTOBUF_INCLUDE google/protobuf/message_lite.h PATHS ${PROJECT_SOURCE_DIR}/.deps/include NO_DEFAULT_PATH)
find_path(EVERYO_ONNXRUNTIME_INCLUDE onnxruntime/onnxruntime_cxx_api.h)
foreach(need IN ITEMS EVERYO_PROTOC EVERYO_ONNX_PROTO EVERYO_PROTOBUF_LITE EVERYO_PROTOBUF_INCLUDE EVERYO_ONNXRUNTIME_INCLUDE)
  if(NOT ${need})
    message(FATAL_ERROR "What reading and writing ONNX files is built on was not found (${need}). Run scripts/setup, which installs "
                        "protoc and onnx.proto and puts protobuf-lite and ONNX Runtime's headers into .deps/.")
  endif()
endforeach()

add_library(everyo_dependencies INTERFACE)
target_link_libraries(everyo_dependencies INTERFACE DNNL::dnnl hwy::hwy fmt::fmt nlohmann_json::nlohmann_json OpenSSL::Crypto ZLIB::ZLIB
                                                    Threads::Threads)
# GCC's OpenMP with either compiler: oneDNN's build uses it, and is told to stay on one thread.
target_link_libraries(everyo_dependencies INTERFACE gomp)

# The messages of an ONNX file, generated from the format's own definition in a package of our own and linked statically,
# so that they never meet those of another library in one process.
set(onnx_file ${PROJECT_BINARY_DIR}/onnx_file/onnx_file)
file(READ ${EVERYO_ONNX_PROTO}/onnx/onnx.proto definition)
string(REPLACE "package onnx;" "package everyo.onnx_file;" definition "${definition}")
file(CONFIGURE OUTPUT ${onnx_file}.proto CONTENT "${definition}" @ONLY)
add_custom_command(OUTPUT ${onnx_file}.pb.cc ${onnx_file}.pb.h DEPENDS ${onnx_file}.proto
                   COMMAND ${EVERYO_PROTOC} --proto_path=${PROJECT_BINARY_DIR}/onnx_file --cpp_out=${PROJECT_BINARY_DIR}/onnx_file ${onnx_file}.proto)
add_library(everyo_onnx_file STATIC ${onnx_file}.pb.cc ${onnx_file}.pb.h)
target_include_directories(everyo_onnx_file SYSTEM PRIVATE ${PROJECT_BINARY_DIR}/onnx_file ${EVERYO_PROTOBUF_INCLUDE})
target_link_libraries(everyo_onnx_file PUBLIC ${EVERYO_PROTOBUF_LITE} Threads::Threads ${CMAKE_DL_LIBS})
# Only the room onnx/ sees them.
set(EVERYO_ONNX_OPTIONS -isystem ${PROJECT_BINARY_DIR}/onnx_file -isystem ${EVERYO_PROTOBUF_INCLUDE} -isystem ${EVERYO_ONNXRUNTIME_INCLUDE})
set(EVERYO_ONNX_DEPENDS ${onnx_file}.pb.h)
