#pragma once
#include <string_view>

#include "kernels/pool.h"
#include "ops/window.h"

// What the pools' records and layers share. Letters: N batch, H W an image, C channels.
namespace everyo::inline v1 {

/// Throws ShapeError for sizes that no image fits: window, stride or dilation not positive, padding negative or not
/// smaller than the cells a window reaches over, so that a window could lie wholly in it.
void require_pool(std::string_view op, Size2D window, const WindowOptions& options);

/// A pool over images x [N, H, W, C]. Throws as require_pool(), and ShapeError "4-D", "larger than the padded", and for
/// a window that sees no cell of the image.
kernels::PoolShape pool_shape(std::string_view op, const Shape& x, Size2D window, const WindowOptions& options);

/// [N, OH, OW, C].
inline Shape pooled(const kernels::PoolShape& s) { return {s.batch, s.height.output, s.width.output, s.channels}; }

/// Cells of the image that all windows see, of all images and channels.
double cells_seen(const kernels::PoolShape& s);

}  // namespace everyo::inline v1
