"""
PRH codes in USearch: an HNSW graph of bits (`b1`), or an exhaustive search.

Besides faiss-prh, it needs: pip install usearch
"""

import tempfile
from pathlib import Path

import faiss
import numpy as np
from usearch.index import Index

from faiss_prh import PRHTransform

EXPANSION = 256  # candidates per step: more of them find more, and take longer


def create(prh):
    """Create an index. It holds codes, not floats, and finds Hamming distances."""
    return Index(ndim=prh.d_out, dtype="b1", metric="hamming", expansion_add=EXPANSION, expansion_search=EXPANSION)


def save(folder, index, prh):
    """Write the index and the encoder, without which its codes mean nothing."""
    index.save(folder / "codes.usearch")
    (folder / "encoder.prh").write_bytes(prh.to_bytes())


def load(folder):
    """Return the index and the encoder in a folder."""
    index = Index.restore(folder / "codes.usearch")
    index.expansion_add = index.expansion_search = EXPANSION  # the file does not store these
    return index, PRHTransform.from_bytes((folder / "encoder.prh").read_bytes())


def insert(index, prh, ids, vectors):
    """Add codes."""
    index.add(np.asarray(ids), prh.encode(vectors))


def delete(index, ids):
    """Remove codes."""
    index.remove(np.asarray(ids))


def search(index, prh, query, k=10, exact=False):
    """Return the k codes (id, Hamming distance) nearest to a vector."""
    return index.search(prh.encode([query])[0], k, exact=exact).to_list()


def search_reranked(index, prh, query, vectors, k=10, shortlist=100):
    """Return the k (id, Euclidean distance) nearest to a vector, within a shortlist; ids are rows of `vectors`."""
    ids = index.search(prh.encode([query])[0], shortlist).keys.astype(np.int64)
    distances = np.linalg.norm(vectors[ids] - query, axis=1)
    nearest = np.argsort(distances)[:k]
    return list(zip(ids[nearest].tolist(), distances[nearest].tolist(), strict=True))


def main(n=20_000, n_queries=100, bits=128):
    """Store made-up vectors, and print what share of the true neighbours is found."""
    rng = np.random.default_rng(0)
    made_up = rng.normal(size=(n + n_queries, 12)) @ rng.normal(size=(12, 128))
    vectors, queries = np.split((made_up + rng.normal(size=made_up.shape) / 2).astype("float32"), [n])

    prh = PRHTransform(128, bits)
    prh.train(vectors[:10_000])
    index = create(prh)
    most = n * 9 // 10
    insert(index, prh, np.arange(most), vectors[:most])
    insert(index, prh, np.arange(most, n), vectors[most:])  # more rows, at any later time
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder), index, prh)
        index, prh = load(Path(folder))  # as another program would do

    _, neighbours = faiss.knn(queries, vectors, 10)
    found = {
        "search": [search(index, prh, query) for query in queries],
        "search, exact": [search(index, prh, query, exact=True) for query in queries],
        "search_reranked": [search_reranked(index, prh, query, vectors) for query in queries],
    }
    for name, results in found.items():
        ids = np.array([[i for i, _ in result] for result in results])
        print(f"{name}: recall@10 {faiss.eval_intersection(ids, neighbours) / neighbours.size:.3f}")
    delete(index, neighbours[0])
    print("without the true neighbours:", search(index, prh, queries[0], k=3))


if __name__ == "__main__":
    main()
