"""
Write the golden files of the current format version: python tests/golden/make.py.

Never overwrite files of a version that was released. The queries are base vectors, which are far apart: no rounding
changes the results.
"""

import sys
from pathlib import Path

import faiss
import numpy as np

import faiss_prh
from faiss_prh import PairwiseRotation
from faiss_prh.learning.model import Model

FOLDER = Path(__file__).parent
DESCRIPTIONS = {
    "v2-flat": "PRH,BFlat",
    "v2-ivf-asymmetric": "PRH,BIVF4,RAsym",
    "v2-hnsw-chain": "PCA12,L2norm,PRH,BHNSW8",
    "v2-ids-refine": "IDMap2,PRH,BIVF4,Refine(SQ8)",
    "v2-hash": "ITQ16,BHash2x6",
    "v2-stock": "IDMap2,PRH,IVF4,Flat,RFlat",
    "v2-product": "PRH,BFlat,RAsym",
    "v2-signs": "PRH,IVF4,Signs",
    "v2-signs-refine": "IDMap,PRH,IVF4,Signs,Refine(SQ8)",
    "v2-signs-product": "PRH,IVF4_HNSW8,Signs",
}


def make_indexes() -> None:
    """Write index files, some queries and their results."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(100, 20)).astype("float32")
    xq = x[::20]
    for name, description in DESCRIPTIONS.items():
        metric = faiss.METRIC_INNER_PRODUCT if name.endswith("product") else faiss.METRIC_L2
        index = faiss_prh.index_factory(20, description, metric)
        index.train(x)
        if "IDMap" in description:
            index.add_with_ids(x, np.arange(100) * 11)
        else:
            index.add(x)
        D, I = index.search(xq, 1)
        faiss_prh.write_index(index, FOLDER / f"{name}.prh")
        np.savez(FOLDER / f"{name}.npz", xq=xq, D=D, I=I)


def make_codes() -> None:
    """Write a transform, an index with it, and for all transforms the codes of vectors by a formula."""
    sys.path.append(str(FOLDER.parent))
    from formula import formula_vectors

    prh = faiss_prh.PRHTransform(40, 27)
    prh.train(formula_vectors(500, 40))
    (FOLDER / "transform-v4.bytes").write_bytes(prh.to_bytes())
    few = faiss_prh.PRHTransform(40, 10)
    tail = np.linalg.qr(formula_vectors(25, 10).astype(np.float64))[0].T.astype(np.float32, order="C")
    few._set(Model(PairwiseRotation.random(40, 3, seed=1), prh.mean, np.arange(0, 25, dtype=np.int32), tail=tail))
    (FOLDER / "transform-v4-tail.bytes").write_bytes(few.to_bytes())
    for path in FOLDER.glob("transform-*.bytes"):
        transform = faiss_prh.PRHTransform.from_bytes(path.read_bytes())
        np.save(path.with_suffix(".npy"), transform.encode(formula_vectors(100, transform.d_in, start=500)))
    index = faiss_prh.IndexBinaryPreTransform(prh, faiss.IndexBinaryFlat(32))
    x = formula_vectors(100, 40, start=500)
    index.add(x)
    D, I = index.search(x[::20], 1)
    faiss_prh.write_index(index, FOLDER / "v2-transform-v4.prh")
    np.savez(FOLDER / "v2-transform-v4.npz", xq=x[::20], D=D, I=I)


if __name__ == "__main__":
    faiss.omp_set_num_threads(1)
    make_indexes()
    make_codes()
