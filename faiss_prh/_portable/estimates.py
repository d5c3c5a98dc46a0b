"""Estimates of distances from the signs of residuals: of all codes in the lists, whatever the margin."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._common.fields import memory_at
from .._common.types import Floats, Ids
from .candidates import Candidates, Searched


def estimated(searched: Searched, z: Floats, numbers: Ids) -> Candidates:
    """Return the codes in some lists with estimates of their distances from a query."""
    scan = searched.scan
    centroids = memory_at(scan.centroids, (scan.n_lists, scan.bits), np.float32)
    query = z - searched.offset() if scan.is_product else z
    constant = np.dot(query, searched.offset()) if scan.is_product else 0
    square, factor = (0, 1) if scan.is_product else (1, 2)
    found = [searched.nothing]
    for number, one in searched.probed(numbers):
        if scan.is_product:
            base, residual = constant - np.dot(query, centroids[number]), query
        else:
            residual = query - centroids[number]
            base = np.dot(residual, residual)
        lengths = np.float32(scan.low) + np.float32(scan.step) * one.codes[:, searched.n_bytes].astype(np.float32)
        products = 2 * (searched.bits_of(number) @ residual) - residual.sum()
        reached = np.float32(factor * scan.reach) * products
        found.append(Candidates(base + lengths * (square * lengths - reached), one.rows, one.places, one.codes))
    return Candidates(*(np.concatenate(part) for part in zip(*found, strict=True)))


def best_estimated(searched: Searched, z: Floats, numbers: Ids, k: int) -> Candidates:
    """Return the k codes with the best estimates."""
    found = estimated(searched, z, numbers)
    return found.only(np.sort(np.argpartition(found.distances, k - 1)[:k])) if k < len(found.rows) else found


def within(searched: Searched, z: Floats, numbers: Ids, radius: np.floating[Any]) -> Candidates:
    """Return the codes with an estimate below a radius."""
    found = estimated(searched, z, numbers)
    return found.only(found.distances < radius)
