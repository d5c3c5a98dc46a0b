"""Pairwise Rotation Hashing for Faiss."""

# Nothing is imported before a public name is used: NumPy and Faiss take half a second, in which the command line
# must already answer `--help` and Ctrl-C. `typing` would take milliseconds, too; type checkers go by the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._public import *  # noqa: F403
    from ._public import __all__ as __all__


def __getattr__(name: str) -> object:
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _public

    globals().update({public: getattr(_public, public) for public in ("__all__", *_public.__all__)})
    try:
        return globals()[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    from . import _public

    return sorted({*globals(), *_public.__all__})
