"""
PRH codes in LanceDB: lists of bytes, searched exhaustively or by inverted lists, by Hamming distance.

Besides faiss-prh, it needs: pip install lancedb
"""

import tempfile

import faiss
import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import IvfFlat

from faiss_prh import PRHTransform


def schema(prh):
    """Return the columns. LanceDB takes whole bytes; `encode` sets the bits beyond d_out to zero."""
    return pa.schema(
        [
            ("id", pa.int64()),
            ("language", pa.string()),
            ("code", pa.list_(pa.uint8(), (prh.d_out + 7) // 8)),
            ("vector", pa.list_(pa.float32(), prh.d_in)),
        ]
    )


def create(db, prh):
    """Create the tables. The encoder is stored with its codes, which mean nothing without it."""
    db.create_table("encoder", [{"model": prh.to_bytes()}])
    return db.create_table("items", schema=schema(prh))


def load_encoder(db):
    """Return the encoder stored in a database."""
    return PRHTransform.from_bytes(db.open_table("encoder").to_arrow()["model"][0].as_py())


def insert(table, prh, ids, languages, vectors):
    """Add rows."""
    codes = prh.encode(vectors)
    columns = [ids, languages, list(codes), list(vectors)]
    table.add(pa.table([pa.array(c, field.type) for c, field in zip(columns, schema(prh), strict=True)], schema(prh)))


def delete(table, ids):
    """Remove rows."""
    table.delete(f"id IN ({', '.join(str(i) for i in ids)})")


def index_lists(table, lists=64):
    """Build inverted lists of the codes. Rows added later are searched exhaustively until `table.optimize()`."""
    table.create_index("code", config=IvfFlat(distance_type="hamming", num_partitions=lists))


def search(table, prh, query, k=10, language=None, lists=16):
    """Return the k rows (id, Hamming distance) nearest to a vector, among those in a language if it is given."""
    found = table.search(prh.encode([query])[0], vector_column_name="code").distance_type("hamming").nprobes(lists)
    if language:
        quoted = language.replace("'", "''")
        found = found.where(f"language = '{quoted}'")
    found = found.select(["id", "_distance"]).limit(k).to_arrow()
    return list(zip(found["id"].to_pylist(), found["_distance"].to_pylist(), strict=True))


def search_reranked(table, prh, query, k=10, shortlist=100):
    """Return the k rows (id, squared Euclidean distance) nearest to a vector, within a shortlist by codes."""
    ids = ", ".join(str(i) for i, _ in search(table, prh, query, shortlist))
    found = table.search(query, vector_column_name="vector").where(f"id IN ({ids})")
    found = found.select(["id", "_distance"]).limit(k).to_arrow()
    return list(zip(found["id"].to_pylist(), found["_distance"].to_pylist(), strict=True))


def main(n=20_000, n_queries=100, bits=128):
    """Store made-up vectors, and print what share of the true neighbours is found."""
    rng = np.random.default_rng(0)
    made_up = rng.normal(size=(n + n_queries, 12)) @ rng.normal(size=(12, 128))
    vectors, queries = np.split((made_up + rng.normal(size=made_up.shape) / 2).astype("float32"), [n])
    languages = rng.choice(["de", "en"], n)

    prh = PRHTransform(128, bits)
    prh.train(vectors[:10_000])
    with tempfile.TemporaryDirectory() as folder:
        db = lancedb.connect(folder)
        table = create(db, prh)
        most = n * 9 // 10
        insert(table, prh, range(most), languages[:most], vectors[:most])
        insert(table, prh, range(most, n), languages[most:], vectors[most:])  # more rows, at any later time

        prh = load_encoder(db)  # as another program would do
        _, neighbours = faiss.knn(queries, vectors, 10)
        for way in "exhaustive", "16 of 64 lists":
            for find in search, search_reranked:
                found = np.array([[i for i, _ in find(table, prh, query)] for query in queries])
                recall = faiss.eval_intersection(found, neighbours) / neighbours.size
                print(f"{way}, {find.__name__}: recall@10 {recall:.3f}")
            if way == "exhaustive":
                index_lists(table)
        print("in English:", search(table, prh, queries[0], k=3, language="en"))
        delete(table, neighbours[0])
        print("without the true neighbours:", search(table, prh, queries[0], k=3))


if __name__ == "__main__":
    main()
