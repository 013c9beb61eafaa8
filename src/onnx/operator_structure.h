#pragma once
#include "onnx/structure_place.h"

namespace everyo::onnx_file {
class NodeProto;
}

namespace everyo::onnx_export {

/// Throws FileError for a node of the standard operators with attributes that break the operator's rules in a way that
/// runtimes do not survive: ONNX Runtime 1.32 ends the process, or never returns. Other faults it reports itself.
void check_operator(const onnx_file::NodeProto& node, const Place& place);

}  // namespace everyo::onnx_export
