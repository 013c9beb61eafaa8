#pragma once
#include <optional>

#include "onnx/structure.h"
#include "onnx/structure_place.h"

namespace everyo::onnx_file {
class SparseTensorProto;
class TensorProto;
class TensorShapeProto;
}  // namespace everyo::onnx_file

namespace everyo::onnx_export {

/// Throws FileError unless a tensor's values are as many as its sizes say, in the one field that its type has for them.
/// Tensors that lie in another file are added to `external`.
void check_tensor(const onnx_file::TensorProto& tensor, const Place& place, std::vector<ExternalData>& external);
/// The same for one of which only some elements are given.
void check_sparse_tensor(const onnx_file::SparseTensorProto& tensor, const Place& place,
                         std::vector<ExternalData>& external);

}  // namespace everyo::onnx_export
