"""Learning angles together, in NumPy: with the roundings and the orders of sums of `native/joint_kernel.cpp`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .._common.types import AnyArray, Doubles, Floats, Ids, Indices
from .rows import cosines

_MOST_SUMS = 32
"""Parts whose slopes are added up on their own."""
_WIDEST_SLAB, _NARROWEST_SLAB = 64, 16
"""Dimensions whose products are added up in single precision."""
_CACHED = 1 << 17
"""Values that stay in a cache between one operation and the next."""


def tiles_turn(x: Floats, i: Indices, j: Indices, theta: Floats, y: Floats) -> None:
    """Write to `y` the tiles `x` after the rotations, one after the other, of rows i and j by theta."""
    cosine, sine = (part.astype(np.float32)[:, None] for part in cosines(theta))
    layers = _layers(x.shape[1], i, j)
    y[:] = x
    for some in _cut(y, range(len(y) + 1)):
        for layer in layers:
            first, second, c, s = i[layer], j[layer], cosine[layer], sine[layer]
            u, w = y[some, first], y[some, second]
            y[some, first] = c * u - s * w
            y[some, second] = s * u + c * w


def tiles_slopes(y: Floats, g: Floats, i: Indices, j: Indices, theta: Floats) -> Doubles:
    """Return the slopes of the angles, given those of `y` behind the rotations, which are undone on `y` and `g`."""
    cosine, sine = (part.astype(np.float32)[:, None] for part in cosines(theta))
    layers = _layers(y.shape[1], i, j)[::-1]
    n_tiles, n_parts = len(y), min(len(y), _MOST_SUMS)
    ends = np.arange(n_parts + 1) * n_tiles // max(1, n_parts)
    slopes = np.zeros(len(i))
    for some in _cut(y, ends):
        # A part's tiles are added up one after the other, and zeros where others have one more.
        starts = ends[(ends >= some.start) & (ends < some.stop)] - some.start
        part_of = np.searchsorted(starts, np.arange(some.stop - some.start), side="right") - 1
        place = np.arange(some.stop - some.start) - starts[part_of]
        of_parts = np.empty((len(starts), len(i)))
        for layer in layers:
            first, second, c, s = i[layer], j[layer], cosine[layer], sine[layer]
            yi, yj, gi, gj = y[some, first], y[some, second], g[some, first], g[some, second]
            products = gj * yi - gi * yj
            y[some, first], y[some, second] = c * yi + s * yj, c * yj - s * yi
            g[some, first], g[some, second] = c * gi + s * gj, c * gj - s * gi
            eight = np.zeros((len(starts), place.max() + 1, len(layer), 8), np.float32)
            eight[part_of, place] = products[..., :8] + products[..., 8:]
            of_parts[:, layer] = _one_by_one(eight.sum(axis=1).astype(np.float64))
        for of_part in of_parts:
            slopes += of_part
    return slopes


def tiles_multiply(matrix: Floats, x: Floats, y: Floats) -> None:
    """Write to `y` the products of a square matrix with the vectors of tiles `x`."""
    y[:] = 0
    for some in _cut(y, range(len(y) + 1)):
        for column in range(len(matrix)):
            y[some] += matrix[:, column, None] * x[some, column, None]


def tiles_outer(g: Floats, x: Floats) -> Doubles:
    """Return the sums, over the vectors of tiles, of the products of each row of `g` and each row of `x`."""
    n_tiles, n, width = x.shape
    n_parts = min(n_tiles, _MOST_SUMS)
    ends = np.arange(n_parts + 1) * n_tiles // max(1, n_parts)
    sums = np.zeros((n_parts, n, n), np.float32)
    for step in range(int(np.diff(ends).max(initial=0))):  # a tile of every part, as far as it has one
        some = np.flatnonzero(ends[:-1] + step < ends[1:])
        of_g, of_x = g[ends[some] + step], x[ends[some] + step]
        these = sums if len(some) == n_parts else sums[some]
        for v in range(width):
            these += of_g[:, :, v, None] * of_x[:, None, :, v]
        sums[some] = these
    products = np.zeros((n, n))
    for part in sums:
        products += part
    return products


def tiles_signs(y: Floats, magnitude: float, g: Floats) -> float:
    """Write to `g` a magnitude with the signs of tiles `y`, and return the sum of |y|."""
    np.copysign(np.float32(magnitude), y, out=g)
    return _total(np.abs(y).reshape(len(y), -1, 8))


def _layers(n: int, i: Indices, j: Indices) -> list[Ids]:
    """Cut rotations into layers of disjoint ones, each after those that it depends on."""
    depth = [0] * n
    depths = np.empty(len(i), dtype=np.int64)
    for number, (a, b) in enumerate(zip(i.tolist(), j.tolist(), strict=True)):
        depths[number] = depth[a] = depth[b] = max(depth[a], depth[b]) + 1
    order = np.argsort(depths, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depths[order])) + 1) if len(i) else []


def _cut(tiles: Floats, ends: AnyArray | range) -> Iterator[slice]:
    """Cut tiles at some of the ends so that a slice stays in a cache."""
    if not tiles.size:
        return
    most, first = max(1, _CACHED // tiles[0].size), 0
    for end, following in zip(ends[1:], [*ends[2:], len(tiles) + most + 1], strict=True):
        if following - first > most and end > first:
            yield slice(int(first), int(end))
            first = end


def _one_by_one(values: AnyArray) -> AnyArray:
    """Return the sums over the last axis, from the first value to the last."""
    total = values[..., 0].copy()
    for number in range(1, values.shape[-1]):
        total += values[..., number]
    return total


def _total(by_eights: Floats) -> float:
    """Return the sum of all values of tiles: eight sums side by side, then those, then one tile after the other."""
    four = _folded(by_eights.sum(axis=1)).astype(np.float64)
    of_tiles = (four[:, 0] + four[:, 1]) + (four[:, 2] + four[:, 3])
    return float(_one_by_one(of_tiles)) if len(of_tiles) else 0.0


def _folded(eight: Floats) -> Floats:
    """Return eight sums as four."""
    return eight[..., :4] + eight[..., 4:]


def soft_signs(y: Floats, m: int, softness: float, signs: Floats) -> float:
    """Write the soft signs of the m vectors of tiles to `signs`, in an order of its own, and return the sum of |y|."""
    n_tiles, n, width = y.shape
    scale = np.float32(1) / np.float32(softness)
    signs.reshape(m, -1)[:, :n] = _soft_sign(y * scale).transpose(0, 2, 1).reshape(n_tiles * width, n)[:m]
    rows = np.zeros((n_tiles, -(-n // 4) * 4, width), np.float32)
    np.abs(y, out=rows[:, :n])
    by_fours = rows.reshape(n_tiles, -1, 4, 2, 8).transpose(0, 1, 3, 2, 4).reshape(n_tiles, -1, 8)
    return _total(by_fours)


def _soft_sign(x: Floats) -> Floats:
    """Return the hyperbolic tangent, from e = 2^t for t = -2 |x| / log 2: (1 - e) / (1 + e)."""
    one = np.float32(1)
    t = np.maximum(np.abs(x) * np.float32(-2.885390082), np.float32(-125))
    whole = np.float32(1.5 * 2**23)
    shifted = t + whole  # its last bits are the whole part of t
    u = (t - (shifted - whole)) * np.float32(0.6931471806)
    power = np.full_like(u, one / np.float32(5040))
    for term in (one / np.float32(720), one / np.float32(120), one / np.float32(24), one / np.float32(6), 0.5, 1, 1):
        power *= u
        power += np.float32(term)
    e = (power.view(np.uint32) + (shifted.view(np.uint32) << np.uint32(23))).view(np.float32)
    signs: Floats = np.copysign((one - e) / (one + e), x)
    return signs


def _slabs(n: int) -> Iterator[slice]:
    first, padded = 0, -(-n // _NARROWEST_SLAB) * _NARROWEST_SLAB
    while first < n:
        left = padded - first
        width = _WIDEST_SLAB if left >= 64 else 32 if left >= 32 else _NARROWEST_SLAB
        yield slice(first, first + width)
        first += width


def sign_products(n: int, signs: Floats, partners: Indices) -> Doubles:
    """Return the products of the soft signs, of n dimensions, of each vector and its partners."""
    m, k = partners.shape
    rows, products = signs.reshape(m, -1), np.zeros((m, k))
    step = max(1, _CACHED // (k * _WIDEST_SLAB))
    for slab in _slabs(n):
        here = np.ascontiguousarray(rows[:, slab])
        for begin in range(0, m, step):
            some = slice(begin, begin + step)
            terms = here[some, None] * here[partners[some]]
            four = _folded(terms.reshape(*terms.shape[:2], -1, 8).sum(axis=2))
            products[some] += (four[..., 0] + four[..., 1]) + (four[..., 2] + four[..., 3])
    return products


def sign_slopes(
    y: Floats, signs: Floats, partners: Indices, ends: Ids, incident: Indices, owners: Indices, weights: Floats,
    softness: float, magnitude: float, g: Floats,
) -> None:  # fmt: skip
    """
    Write to `g` the slopes of `y`, given those of the products (`weights`) and of each |y| (`magnitude`).

    The places of `partners` where vector v stands are incident[ends[v - 1]:ends[v]], and `owners` whose they are.
    """
    (m, k), (n_tiles, n, width) = partners.shape, y.shape
    rows, scale = signs.reshape(m, -1)[:, :n], np.float32(1) / np.float32(softness)
    sums = weights[:, :1] * rows[partners[:, 0]]
    for c in range(1, k):
        sums += weights[:, c, None] * rows[partners[:, c]]
    starts = np.concatenate([[0], ends[:-1]])
    counts, flat = ends - starts, weights.ravel()
    order = np.argsort(-counts, kind="stable")
    for round_ in range(int(counts.max(initial=0))):
        some = order[: np.count_nonzero(counts > round_)]
        places = starts[some] + round_
        sums[some] += flat[incident[places], None] * rows[owners[places]]
    found = np.zeros((n_tiles * width, n), np.float32)
    found[:m] = sums * ((np.float32(1) - rows * rows) * scale)
    g[:] = found.reshape(n_tiles, width, n).transpose(0, 2, 1)
    g += np.float32(magnitude) * np.sign(y)
