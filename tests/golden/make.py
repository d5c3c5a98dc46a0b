"""
Write the golden files of the current format version: python tests/golden/make.py.

Never overwrite files of a version that was released. The queries are base vectors, which are far apart: no rounding
changes the results.
"""

from pathlib import Path

import faiss
import numpy as np

import faiss_prh

FOLDER = Path(__file__).parent
DESCRIPTIONS = {
    "v1-flat": "PRH,BFlat",
    "v1-ivf-asymmetric": "PRH,BIVF4,RAsym",
    "v1-hnsw-chain": "PCA12,L2norm,PRH,BHNSW8",
    "v1-ids-refine": "IDMap2,PRH,BIVF4,Refine(SQ8)",
    "v1-hash": "ITQ16,BHash6",
    "v1-stock": "IDMap2,PRH,IVF4,Flat,RFlat",
}


def main() -> None:
    """Write the files."""
    faiss.omp_set_num_threads(1)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(100, 20)).astype("float32")
    xq = x[::20]
    for name, description in DESCRIPTIONS.items():
        index = faiss_prh.index_factory(20, description)
        index.train(x)
        if "IDMap" in description:
            index.add_with_ids(x, np.arange(100) * 11)
        else:
            index.add(x)
        D, I = index.search(xq, 1)
        faiss_prh.write_index(index, FOLDER / f"{name}.prh")
        np.savez(FOLDER / f"{name}.npz", xq=xq, D=D, I=I)


if __name__ == "__main__":
    main()
