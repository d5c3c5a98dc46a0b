"""
PRH codes in SQLite, with sqlite-vec: a `bit[n]` column, searched exhaustively by Hamming distance.

Besides faiss-prh, it needs: pip install apsw sqlite-vec
"""

import apsw
import faiss
import numpy as np
import sqlite_vec

from faiss_prh import PRHTransform


def connect(path):
    """Open a database. apsw brings its own SQLite: many builds of Python's sqlite3 cannot load extensions."""
    db = apsw.Connection(path)
    db.enable_load_extension(True)
    db.load_extension(sqlite_vec.loadable_path())
    db.enable_load_extension(False)
    return db


def create(db, prh):
    """Create the tables. The encoder is stored with its codes, which mean nothing without it."""
    whole_bytes = 8 * ((prh.d_out + 7) // 8)  # sqlite-vec takes whole bytes; bits beyond d_out are zero
    db.execute("CREATE TABLE encoder (model BLOB)")
    db.execute("INSERT INTO encoder VALUES (?)", (prh.to_bytes(),))
    db.execute(
        "CREATE VIRTUAL TABLE items USING vec0"
        f"(id INTEGER PRIMARY KEY, language TEXT, code BIT[{whole_bytes}], +vector BLOB)"
    )


def load_encoder(db):
    """Return the encoder stored in a database."""
    return PRHTransform.from_bytes(db.execute("SELECT model FROM encoder").get)


def insert(db, prh, ids, languages, vectors):
    """Add rows, in one transaction."""
    codes = map(bytes, prh.encode(vectors))
    rows = zip(ids, languages, codes, map(np.ndarray.tobytes, vectors), strict=True)
    with db:
        db.executemany("INSERT INTO items (id, language, code, vector) VALUES (?, ?, vec_bit(?), ?)", rows)


def delete(db, ids):
    """Remove rows."""
    with db:
        db.executemany("DELETE FROM items WHERE id = ?", ((i,) for i in ids))


def search(db, prh, query, k=10, language=None):
    """Return the k rows (id, Hamming distance) nearest to a vector, among those in a language if it is given."""
    only = "AND language = :language" if language else ""
    return db.execute(
        f"SELECT id, distance FROM items WHERE code MATCH vec_bit(:code) AND k = :k {only} ORDER BY distance",
        {"code": prh.encode([query]).tobytes(), "k": k, "language": language},
    ).fetchall()


def search_reranked(db, prh, query, k=10, shortlist=100):
    """Return the k rows (id, Euclidean distance) nearest to a vector, within a shortlist by codes."""
    return db.execute(
        """
        SELECT id, vec_distance_L2(vector, :query) AS distance
        FROM (SELECT id, vector FROM items WHERE code MATCH vec_bit(:code) AND k = :shortlist)
        ORDER BY distance LIMIT :k
        """,
        {"code": prh.encode([query]).tobytes(), "query": query.tobytes(), "k": k, "shortlist": shortlist},
    ).fetchall()


def main(n=20_000, n_queries=100, bits=128, path=":memory:"):
    """Store made-up vectors, and print what share of the true neighbours is found."""
    rng = np.random.default_rng(0)
    made_up = rng.normal(size=(n + n_queries, 12)) @ rng.normal(size=(12, 128))
    vectors, queries = np.split((made_up + rng.normal(size=made_up.shape) / 2).astype("float32"), [n])
    languages = rng.choice(["de", "en"], n)

    prh = PRHTransform(128, bits)
    prh.train(vectors[:10_000])
    db = connect(path)
    create(db, prh)
    most = n * 9 // 10
    insert(db, prh, range(most), languages[:most].tolist(), vectors[:most])
    insert(db, prh, range(most, n), languages[most:].tolist(), vectors[most:])  # more rows, at any later time

    prh = load_encoder(db)  # as another program would do
    _, neighbours = faiss.knn(queries, vectors, 10)
    for find in search, search_reranked:
        found = np.array([[i for i, _ in find(db, prh, query)] for query in queries])
        print(f"{find.__name__}: recall@10 {faiss.eval_intersection(found, neighbours) / neighbours.size:.3f}")
    print("in English:", search(db, prh, queries[0], k=3, language="en"))
    delete(db, neighbours[0].tolist())
    print("without the true neighbours:", search(db, prh, queries[0], k=3))


if __name__ == "__main__":
    main()
