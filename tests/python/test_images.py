"""Layers of images against NumPy, and what they refuse. Letters: N images, H W cells, C channels."""

import numpy as np
import pytest

import everyo as eo
from everyo import nn

RNG = np.random.default_rng(13)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def window_places(size, kernel, stride, padding):
    """Padding in front and number of places of a window along one axis."""
    if padding == "same":
        out = -(-size // stride)
        return max((out - 1) * stride + kernel - size, 0) // 2, out
    cells = 0 if padding == "valid" else padding
    return cells, (size + 2 * cells - kernel) // stride + 1


def windows(x, kernel, stride, padding):
    """(row, column, cells of the image inside the window, their place in the window)."""
    (before_h, out_h), (before_w, out_w) = (
        window_places(x.shape[1 + i], kernel[i], stride[i], padding) for i in range(2)
    )
    for row in range(out_h):
        for column in range(out_w):
            top, left = row * stride[0] - before_h, column * stride[1] - before_w
            h = slice(max(top, 0), min(top + kernel[0], x.shape[1]))
            w = slice(max(left, 0), min(left + kernel[1], x.shape[2]))
            yield row, column, x[:, h, w], (slice(h.start - top, h.stop - top), slice(w.start - left, w.stop - left))


def over_windows(x, kernel, stride, padding, channels, function):
    shape = [window_places(x.shape[1 + i], kernel[i], stride[i], padding)[1] for i in range(2)]
    y = np.zeros((len(x), *shape, channels))
    for row, column, cells, place in windows(x, kernel, stride, padding):
        y[:, row, column] = function(cells, place)
    return y


WINDOWS = [
    ((1, 1), (1, 1), "valid"),
    ((3, 3), (1, 1), "same"),
    ((3, 2), (2, 1), "valid"),
    ((2, 3), (2, 2), "SAME"),
    ((3, 3), (2, 2), 1),
]


@pytest.mark.parametrize("kernel, stride, padding", WINDOWS)
@pytest.mark.parametrize("size", [(5, 6), (7, 4)])
def test_conv_matches_numpy(kernel, stride, padding, size):
    layer, x = nn.Conv2D(2, 3, kernel, stride=stride, padding=padding, seed=0), normal(2, *size, 2)
    layer.bias.data = normal(3)
    weight = layer.weight.numpy().astype(np.float64)
    padding = padding.lower() if isinstance(padding, str) else padding

    def products(cells, place):
        return np.einsum("nhwc,hwco->no", cells, weight[place]) + layer.bias.numpy()

    # 18 products of size about 1, in float32.
    assert np.allclose(layer(x).numpy(), over_windows(x, kernel, stride, padding, 3, products), rtol=1e-5, atol=1e-5)
    assert layer.kernel_size == kernel and layer.stride == stride and layer.weight.shape == (*kernel, 2, 3)


@pytest.mark.parametrize("kernel, stride, padding", WINDOWS)
def test_pools_match_numpy(kernel, stride, padding):
    x = normal(2, 7, 6, 3)
    if padding == 1 and min(kernel) == 1:
        return
    word = padding.lower() if isinstance(padding, str) else padding
    y = nn.MaxPool2D(kernel, stride=stride, padding=padding)(x).numpy()
    assert np.array_equal(y, over_windows(x, kernel, stride, word, 3, lambda cells, place: cells.max(axis=(1, 2))))
    y = nn.AvgPool2D(kernel, stride=stride, padding=padding)(x).numpy()
    # At most nine values in another order.
    assert np.allclose(
        y, over_windows(x, kernel, stride, word, 3, lambda cells, place: cells.mean(axis=(1, 2))), rtol=1e-5, atol=1e-6
    )


def test_conv_groups_and_dilation():
    x = normal(2, 7, 8, 4)
    layer = nn.Conv2D(4, 6, (2, 3), groups=2, seed=0)
    weight = layer.weight.numpy()
    assert weight.shape == (2, 3, 2, 6)
    halves = [
        eo.conv2d(x[..., :2].copy(), weight[..., :3].copy()),
        eo.conv2d(x[..., 2:].copy(), weight[..., 3:].copy()),
    ]
    # The same sums of twelve products, perhaps in another order.
    assert np.allclose(layer(x).numpy(), np.concatenate([half.numpy() for half in halves], -1), rtol=1e-5, atol=1e-5)
    layer = nn.Conv2D(4, 3, (2, 3), dilation=(3, 2), seed=0)
    stretched = np.zeros((4, 5, 4, 3), np.float32)
    stretched[::3, ::2] = layer.weight.numpy()
    assert np.allclose(layer(x).numpy(), eo.conv2d(x, stretched).numpy(), rtol=1e-5, atol=1e-5)


def test_adaptive_and_global_pools_match_numpy():
    x = normal(2, 6, 4, 3)
    # Means of at most 24 values, in another order.
    assert np.allclose(nn.GlobalAvgPool2D()(x).numpy(), x.mean((1, 2)), rtol=1e-5, atol=1e-6)
    expected = x.reshape(2, 3, 2, 2, 2, 3).mean((2, 4))
    assert np.allclose(nn.AdaptiveAvgPool2D((3, 2))(x).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_pools_step_by_their_window():
    assert nn.MaxPool2D()(normal(1, 6, 6, 1)).shape == (1, 3, 3, 1) and nn.AvgPool2D(3)(normal(1, 6, 6, 1)).shape == (
        1,
        2,
        2,
        1,
    )
    assert nn.Conv2D(1, 1)(normal(1, 6, 6, 1)).shape == (1, 4, 4, 1)


def test_Y09_PoolWindowsInsideThePaddingAreRefused():
    for pool in (nn.MaxPool2D, nn.AvgPool2D):
        for size, padding in ((2, 2), ((3, 1), 1)):
            with pytest.raises(eo.EveryOShapeError, match="wholly in the padding"):
                pool(size, padding=padding)
        assert np.isfinite(pool(3, stride=1, padding=2)(normal(1, 2, 2, 1)).numpy()).all()


def test_image_layers_refuse_what_does_not_fit():
    conv = nn.Conv2D(3, 2)
    for call, words in (
        (lambda: conv(normal(4, 4, 3)), "4-D tensor"),
        (lambda: conv(normal(1, 4, 4, 2)), "must be 3 channel"),
        (lambda: conv(normal(1, 2, 2, 3)), "does not fit"),
        (lambda: nn.Conv2D(3, 2, padding="full"), "Unknown padding"),
        (lambda: nn.MaxPool2D(padding="full"), "Unknown padding"),
        (lambda: nn.Conv2D(3, 2, padding=(1, 1)), "Unknown padding"),
        (lambda: nn.Conv2D(3, 2, 0), "must be positive"),
        (lambda: nn.Conv2D(3, 2, stride=0), "must be positive"),
        (lambda: nn.MaxPool2D(0), "must be positive"),
        (lambda: nn.AvgPool2D(2, stride=-1), "must be positive"),
        (lambda: nn.Conv2D(3, 2, groups=2), "do not divide"),
        (lambda: nn.Conv2D(3, 2, groups=0), "must be positive"),
        (lambda: nn.Conv2D(3, 2, dilation=0), "must be positive"),
        (lambda: nn.AdaptiveAvgPool2D(0), "must be positive"),
        (lambda: nn.Conv2D(0, 2), "positive channel counts"),
        (lambda: nn.MaxPool2D(5)(normal(1, 4, 4, 1)), "larger than the padded"),
        (lambda: nn.AvgPool2D(5)(normal(1, 4, 4, 1)), "larger than the padded"),
    ):
        with pytest.raises(eo.EveryOShapeError, match=words):
            call()
