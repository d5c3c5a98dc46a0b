"""The C++ library, for those who have it. `_backend` imports these modules, or those of `_portable`."""


class LibraryMissing(ImportError):
    """There is no native library: the package was built without a compiler, or not at all."""


class LayoutMismatch(ImportError):
    """Faiss's classes are not laid out as native code has them."""
