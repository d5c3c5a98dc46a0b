"""Vectors that every machine and every NumPy makes alike: whole numbers of 64ths, by a formula."""

import numpy as np


def formula_vectors(n, d, start=0):
    i, j = np.indices((n, d), sparse=True)
    i = i + start
    return ((i * i * 37 + j * j * 101 + i * j * 13) % 257 / 64 - 2).astype(np.float32)
