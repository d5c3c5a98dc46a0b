"""The paper's rivals and those a user would choose today, each an `Encoder`."""

import math
from collections.abc import Callable

from bench.baselines.bpbc import BPBC
from bench.baselines.encoder import Encoder, random_orthogonal
from bench.baselines.iso import ISO
from bench.baselines.itq import ITQ, FaissITQ
from bench.baselines.kmh import KMH
from bench.baselines.pcah import PCAH
from bench.baselines.prh import PRH, Reduced
from bench.baselines.rotations import hadamard, has_hadamard, rr, srr

Makers = dict[str, Callable[[int], Encoder]]
"""Functions that make an encoder for a seed, by name."""

QUICK_DENSE_BITS = 512  # above, what decomposes a dense matrix again and again is too slow for a quick run


def prh(d: int, n_iso: int, n_pca: int, tilt: float, seed: int, bits: int | None = None) -> Encoder:
    made = PRH(bits or d, n_iso=n_iso, n_pca=n_pca, tilt=tilt, seed=seed)
    return made if made.d_in == d else Reduced(d, made.d_in, made)


def layers(bits: int) -> int:
    return math.ceil(math.log2(bits))


def prh_makers(d: int, settings: list[tuple[int, int, float]], bits: int | None = None) -> Makers:
    """Return PRH with settings (n_iso, n_pca, tilt), by the paper's names."""
    return {
        f"PRH({n_iso},{n_pca},{tilt:g})": lambda seed, setting=(n_iso, n_pca, tilt): prh(d, *setting, seed, bits)
        for n_iso, n_pca, tilt in settings
    }


def possible(name: str, make: Callable[[int], Encoder]) -> Makers:
    """Return the rival by its name, or print why it cannot be made and return nothing."""
    try:
        make(0)
    except ValueError as error:
        print(f"{name} is left out. {error}.")
        return {}
    return {name: make}


def rival_makers(d: int, bits: int | None = None, *, quick: bool = False) -> Makers:
    """Return all rivals, without the slow ones for a quick run; those that keep the dimension come after PCA."""
    bits = bits or d

    def kept(make: Callable[[int, int], Encoder]) -> Callable[[int], Encoder]:
        return lambda seed: make(bits, seed) if bits == d else Reduced(d, bits, make(bits, seed))

    makers: Makers = {
        "ITQ, Faiss's": lambda seed: FaissITQ(bits),
        "ITQ, published": lambda seed: ITQ(bits, seed),
        "ISO": lambda seed: ISO(bits, seed),
        "PCAH": lambda seed: PCAH(bits),
        **possible("KMH", lambda seed: KMH(bits)),
        "SRR": kept(srr),
        "RR": kept(rr),
    }
    if has_hadamard():
        makers["Hadamard"] = kept(hadamard)
    if quick:
        slow = {"KMH"} if bits <= QUICK_DENSE_BITS else {"KMH", "ITQ, Faiss's", "ITQ, published", "ISO"}
        print(f"A quick run leaves out what takes minutes at {bits} bits: {'; '.join(sorted(slow))}.")
        makers = {name: make for name, make in makers.items() if name not in slow}
    return makers


__all__ = ["BPBC", "ISO", "ITQ", "KMH", "PCAH", "PRH", "Encoder", "FaissITQ", "Makers", "Reduced", "layers"]
__all__ += ["hadamard", "has_hadamard", "possible", "prh", "prh_makers", "random_orthogonal"]
__all__ += ["rival_makers", "rr", "srr"]
