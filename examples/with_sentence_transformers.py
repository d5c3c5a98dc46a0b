"""
PRH codes instead of plain sign bits in sentence-transformers' semantic search (precision "ubinary").

Besides faiss-prh, it needs: pip install sentence-transformers usearch
"""

import faiss
import numpy as np
from hashed_words import embed, texts
from sentence_transformers.util.quantization import semantic_search_faiss, semantic_search_usearch

from faiss_prh import PRHTransform

LIBRARIES = {"faiss": semantic_search_faiss, "usearch": semantic_search_usearch}


def search(prh, library, queries, codes, k=10):
    """Return the ids that are nearest to queries (floats), re-ranked by the float queries against the codes."""
    # It takes the signs of what it is given as query: apply, not encode, so that it has floats to re-rank by.
    results, *_ = LIBRARIES[library](
        prh.apply(queries), corpus_embeddings=codes, corpus_precision="ubinary", top_k=k, rescore_multiplier=4
    )
    return np.array([[hit["corpus_id"] for hit in hits] for hits in results])


def main(n=2000):
    """Search sentences by codes."""
    sentences, _ = texts(n)
    vectors, queries = np.split(embed(sentences), [n - 100])
    prh = PRHTransform(vectors.shape[1])
    prh.train(vectors)
    codes = prh.encode(vectors, bitorder="big")  # as sentence-transformers' own quantize_embeddings
    _, neighbours = faiss.knn(queries, vectors, 10)
    for library in LIBRARIES:
        found = search(prh, library, queries, codes)
        print(f"{library}: recall@10 {faiss.eval_intersection(found, neighbours) / neighbours.size:.3f}")


if __name__ == "__main__":
    main()
