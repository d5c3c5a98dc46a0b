"""The arrays that go from room to room."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

AnyArray: TypeAlias = npt.NDArray[Any]
Vectors: TypeAlias = npt.NDArray[np.generic]
"""Vectors as they come from a caller, of any real type."""
Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
Codes: TypeAlias = npt.NDArray[np.uint8]
Ids: TypeAlias = npt.NDArray[np.int64]
Indices: TypeAlias = npt.NDArray[np.int32]
Distances: TypeAlias = npt.NDArray[np.int32]
"""Hamming distances, as Faiss gives them."""
