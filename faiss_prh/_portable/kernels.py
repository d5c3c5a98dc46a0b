"""The functions of `_native.kernels`, in NumPy."""

from .rows import (
    column_products,
    gather,
    inverse_factor,
    match,
    matrix_rotate,
    moments_add,
    nearer,
    nearest,
    rows_centre,
    rows_covariances,
    rows_fill,
    rows_rotate,
)
from .tiles import (
    sign_products,
    sign_slopes,
    soft_signs,
    tiles_multiply,
    tiles_outer,
    tiles_signs,
    tiles_slopes,
    tiles_turn,
)

__all__ = [
    "column_products",
    "gather",
    "inverse_factor",
    "match",
    "matrix_rotate",
    "moments_add",
    "nearer",
    "nearest",
    "rows_centre",
    "rows_covariances",
    "rows_fill",
    "rows_rotate",
    "sign_products",
    "sign_slopes",
    "soft_signs",
    "tiles_multiply",
    "tiles_outer",
    "tiles_signs",
    "tiles_slopes",
    "tiles_turn",
]
