#pragma once
// The messages of an ONNX file; only this room includes them, in .cpp files.
#include "onnx_file.pb.h"
