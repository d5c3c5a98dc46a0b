"""
Programs that use Faiss, with PRH in their index: add, search, filter, delete, save, load, search again.

Vectors are made of hashed words, no model is loaded. What a program or Faiss itself cannot do is shown with a stock
index as well: `docs/clients.md` has the table.
"""

import importlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest

import faiss_prh

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.append(str(EXAMPLES))

from hashed_words import D, embed, texts  # noqa: E402

N, K = 600, 5
NEEDS = {
    "langchain": ["langchain_community"],
    "llamaindex": ["llama_index.vector_stores.faiss"],
    "haystack": ["haystack_integrations.document_stores.faiss"],
    "txtai": ["txtai"],
    "autofaiss": ["autofaiss"],
    "sentence_transformers": ["sentence_transformers", "usearch"],
}
# What they compute is exact, so that an exhaustive search by NumPy finds the same.
EXACT = ["PRH,Flat", "PRH,LSH,RFlat"]


def recipe(client):
    for package in NEEDS[client]:
        pytest.importorskip(package, reason='pip install ".[clients-torch]"')
    return importlib.import_module(f"with_{client}")


@pytest.fixture
def stock():
    """Faiss without anything of ours in it: recipes that were imported before may have put it there."""
    faiss_prh.uninstall()
    assert faiss.write_index.__module__.startswith("faiss.")


@pytest.fixture
def installed():
    faiss_prh.install()
    yield
    faiss_prh.uninstall()


@pytest.fixture(scope="module")
def corpus():
    sentences, places = texts(N + 20)
    return sentences[:N], places[:N], sentences[N:]


def nearest(sentences, query, k=K):
    """Return the sentences nearest to one, by plain arithmetic."""
    distances = np.linalg.norm(embed(sentences) - embed([query]), axis=1)
    return [sentences[i] for i in np.argsort(distances)[:k]]


def share(found, expected):
    """Return which share of results is the same, per query."""
    return np.mean([len(set(a) & set(b)) / max(1, len(b)) for a, b in zip(found, expected, strict=True)])


def made(factory, sentences, metric=faiss.METRIC_L2):
    index = faiss_prh.index_factory(D, factory, metric)
    index.train(embed(sentences))
    exhaustive(index)
    return index


def exhaustive(index):
    """Make an index search all its lists, and rank all again."""
    if hasattr(index, "k_factor"):
        index.k_factor = 100
    elif isinstance(index, faiss.Index) and (ivf := faiss.try_extract_index_ivf(index)):
        ivf.nprobe = ivf.nlist


def without_this_package(program, *arguments):
    """Return what a Python prints in which faiss_prh is not imported."""
    program += "\nimport sys\nassert not any(name.startswith('faiss_prh') for name in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments], cwd=EXAMPLES, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# LangChain


@pytest.fixture
def langchain():
    return recipe("langchain")


def langchain_store(module, index, corpus):
    sentences, places, _ = corpus
    docstore = importlib.import_module("langchain_community.docstore.in_memory").InMemoryDocstore()
    store = module.FAISS(module.Model(), index, docstore, {})
    half = N // 2
    for part in slice(0, half), slice(half, N):
        store.add_texts(sentences[part], [{"place": p} for p in places[part]], ids=sentences[part])
    return store


def langchain_results(store, queries, **options):
    return [[document.page_content for document in store.similarity_search(q, K, **options)] for q in queries]


@pytest.mark.parametrize("factory", [*EXACT, "PRH,LSH", "PRH64,IVF8,Flat", "PRH,SQ8"])
def test_langchain_saves_and_loads_with_no_line_of_ours(factory, langchain, corpus, tmp_path, stock):
    sentences, _, queries = corpus
    store = langchain_store(langchain, made(factory, sentences), corpus)
    found = langchain_results(store, queries)
    if factory in EXACT:
        assert found == [nearest(sentences, query) for query in queries]

    store.save_local(str(tmp_path))
    store.save_local(str(tmp_path))  # over the older one
    loaded = langchain.FAISS.load_local(str(tmp_path), langchain.Model(), allow_dangerous_deserialization=True)
    assert share(langchain_results(loaded, queries), found) >= 0.99
    pickled = langchain.FAISS.deserialize_from_bytes(
        store.serialize_to_bytes(), langchain.Model(), allow_dangerous_deserialization=True
    )
    assert share(langchain_results(pickled, queries), found) >= 0.99
    loaded.add_texts(["purple unicorn"], [{"place": "moon"}], ids=["new"])
    assert loaded.similarity_search("purple unicorn", 1)[0].id == "new"


@pytest.mark.parametrize("factory", ["PRH,Flat", "PRH,LSH"])
def test_langchain_filters_and_deletes(factory, langchain, corpus, tmp_path, stock):
    check_langchain_filters_and_deletes(langchain, made(factory, corpus[0]), corpus, tmp_path, factory == "PRH,Flat")


@pytest.mark.parametrize("factory", ["PRH,BFlat", "PRH,BFlat,RFlat", "PRH,BFlat,RAsym"])
def test_langchain_with_our_binary_indexes(factory, langchain, corpus, tmp_path, installed):
    index = made(factory, corpus[0])
    check_langchain_filters_and_deletes(langchain, index, corpus, tmp_path, factory.endswith("RFlat"))


def check_langchain_filters_and_deletes(langchain, index, corpus, tmp_path, is_exact):
    sentences, places, queries = corpus
    in_forest = [s for s, place in zip(sentences, places, strict=True) if place == "forest"]
    store = langchain_store(langchain, index, corpus)
    filtered = langchain_results(store, queries, filter={"place": "forest"}, fetch_k=N)
    assert {s for result in filtered for s in result} <= set(in_forest)
    if is_exact:
        assert filtered == [nearest(in_forest, query) for query in queries]

    for gone in filtered[0], filtered[1] if not set(filtered[0]) & set(filtered[1]) else sentences[:1]:
        store.delete(gone)
        sentences = [s for s in sentences if s not in gone]
    found = langchain_results(store, queries)
    assert {s for result in found for s in result} <= set(sentences)
    if is_exact:
        assert found == [nearest(sentences, query) for query in queries]
    for sentence in sentences[::50]:  # each document still belongs to its vector
        assert sentence in [document.id for document in store.similarity_search(sentence, K)]
    store.save_local(str(tmp_path))
    loaded = langchain.FAISS.load_local(str(tmp_path), langchain.Model(), allow_dangerous_deserialization=True)
    assert share(langchain_results(loaded, queries), found) >= 0.99


@pytest.mark.parametrize("factory", ["PRH,LSH", "PRH,SQ8"])
def test_langchain_merges_a_loaded_store_into_the_one_it_was_saved_from(factory, langchain, corpus, tmp_path, stock):
    sentences, _, queries = corpus
    store = langchain_store(langchain, made(factory, sentences), corpus)
    found = langchain_results(store, queries)
    store.save_local(str(tmp_path))
    other = langchain.FAISS.load_local(str(tmp_path), langchain.Model(), allow_dangerous_deserialization=True)
    other.delete(sentences)
    other.add_texts(["purple unicorn"], ids=["new"])
    store.merge_from(other)
    assert store.similarity_search("purple unicorn", 1)[0].id == "new"
    assert share(langchain_results(store, queries), found) >= 0.99


@pytest.mark.parametrize("factory", ["PCA64,Flat", "PRH,Flat"])
def test_faiss_does_not_merge_flat_indexes_after_reading_them(factory, corpus, stock):
    """It makes an IndexFlat, reads an IndexFlatL2, and does not take them for the same type."""
    index = made(factory, corpus[0])
    other = faiss.deserialize_index(faiss.serialize_index(index))
    with pytest.raises(RuntimeError, match="can only merge indexes of the same type"):
        index.merge_from(other)


def test_langchain_loads_without_this_package(langchain, corpus, tmp_path, stock):
    sentences, _, queries = corpus
    store = langchain_store(langchain, made("PRH,LSH", sentences), corpus)
    store.save_local(str(tmp_path))
    program = """
import json, sys
from hashed_words import embed
from langchain_community.vectorstores import FAISS
store = FAISS.load_local(sys.argv[1], lambda text: embed([text])[0], allow_dangerous_deserialization=True)
print(json.dumps([[d.page_content for d in store.similarity_search(q, 5)] for q in sys.argv[2:]]))
"""
    assert share(without_this_package(program, str(tmp_path), *queries), langchain_results(store, queries)) >= 0.99


@pytest.mark.parametrize("factory", ["IVF4,Flat", "PRH,IVF4,Flat"])
def test_langchain_mixes_documents_up_after_deleting_from_inverted_lists(factory, langchain, corpus, stock):
    """It numbers the others anew, as a flat index does; inverted lists keep the numbers."""
    sentences = corpus[0]
    store = langchain_store(langchain, made(factory, sentences), corpus)
    store.delete(sentences[:1])
    assert store.similarity_search(sentences[10], 1)[0].id == sentences[11]


@pytest.mark.parametrize("factory", ["LSH,RFlat", "PRH,LSH,RFlat"])
def test_faiss_does_not_delete_from_what_it_ranks_again(factory, langchain, corpus, stock):
    store = langchain_store(langchain, made(factory, corpus[0]), corpus)
    with pytest.raises(RuntimeError, match="remove_ids not implemented"):
        store.delete(corpus[0][:1])


# LlamaIndex


@pytest.fixture
def llamaindex():
    return recipe("llamaindex")


@pytest.mark.parametrize("factory", [*EXACT, "PRH,LSH", "PRH64,IVF8,Flat"])
def test_llamaindex_saves_and_loads_with_no_line_of_ours(factory, llamaindex, corpus, tmp_path, stock):
    sentences, _, queries = corpus
    simple = importlib.import_module("llama_index.vector_stores.faiss").FaissVectorStore
    store = simple(made(factory, sentences))
    llamaindex.add(store, sentences, sentences)
    found = [llamaindex.search(store, query, K) for query in queries]
    if factory in EXACT:
        assert [[sentences[int(i)] for i in ids] for ids in found] == [nearest(sentences, query) for query in queries]
    store.persist(str(tmp_path / "index"))
    store.persist(str(tmp_path / "index"))
    loaded = simple.from_persist_path(str(tmp_path / "index"))
    assert share([llamaindex.search(loaded, query, K) for query in queries], found) >= 0.99
    with pytest.raises(NotImplementedError):
        loaded.delete("0")


def test_llamaindex_with_our_binary_indexes(llamaindex, corpus, tmp_path, installed):
    sentences, _, queries = corpus
    simple = importlib.import_module("llama_index.vector_stores.faiss").FaissVectorStore
    store = simple(made("PRH,BFlat,RFlat", sentences))
    llamaindex.add(store, sentences, sentences)
    store.persist(str(tmp_path / "index"))
    loaded = simple.from_persist_path(str(tmp_path / "index"))
    for searched in store, loaded:
        found = [[sentences[int(i)] for i in llamaindex.search(searched, query, K)] for query in queries]
        assert found == [nearest(sentences, query) for query in queries]
    with pytest.raises(ValueError, match=r"requires a faiss\.IndexIDMap"):
        llamaindex.FaissMapVectorStore(made("IDMap2,PRH,BFlat", sentences))


@pytest.mark.parametrize("factory", ["IDMap,PRH,LSH", "IDMap2,PRH,Flat"])
def test_llamaindex_map_store_deletes(factory, llamaindex, corpus, tmp_path, stock):
    sentences, _, queries = corpus
    store = llamaindex.create(embed(sentences), factory)
    llamaindex.add(store, sentences, sentences)
    gone = [llamaindex.search(store, query, K)[0] for query in queries]
    for sentence in gone[:3]:
        store.delete(sentence)
    store.delete_nodes(sorted({*gone[3:]} - {*gone[:3]}))
    left = [s for s in sentences if s not in gone]
    found = [llamaindex.search(store, query, K) for query in queries]
    assert {s for result in found for s in result} <= set(left)
    if factory.endswith("Flat"):
        assert found == [nearest(left, query) for query in queries]
    store.persist(str(tmp_path / "index"))
    loaded = llamaindex.FaissMapVectorStore.from_persist_path(str(tmp_path / "index"))
    assert share([llamaindex.search(loaded, query, K) for query in queries], found) >= 0.99
    loaded.delete(found[0][0])
    assert found[0][0] not in llamaindex.search(loaded, queries[0], K)


def test_llamaindex_loads_without_this_package(llamaindex, corpus, tmp_path, stock):
    sentences, _, queries = corpus
    store = llamaindex.create(embed(sentences))
    llamaindex.add(store, sentences, sentences)
    store.persist(str(tmp_path / "index"))
    program = """
import json, sys
from hashed_words import embed
from llama_index.core.vector_stores.types import VectorStoreQuery
from llama_index.vector_stores.faiss import FaissMapVectorStore
store = FaissMapVectorStore.from_persist_path(sys.argv[1])
queries = [VectorStoreQuery(query_embedding=v, similarity_top_k=5) for v in embed(sys.argv[2:]).tolist()]
print(json.dumps([store.query(query).ids for query in queries]))
"""
    found = [llamaindex.search(store, query, K) for query in queries]
    assert share(without_this_package(program, str(tmp_path / "index"), *queries), found) >= 0.99


IN_LLAMAINDEX = """
import with_llamaindex as module
store = module.create(embed(sentences), "IDMap2," + sys.argv[1])
module.add(store, sentences, sentences)
store.delete(sentences[0])
print(module.search(store, sentences[10], 1) == [sentences[11]], flush=True)
store.delete(sentences[1])
"""
IN_HAYSTACK = """
import with_haystack as module
store = module.create(embed(sentences), sys.argv[1])
store.write_documents([module.Document(id=s, embedding=v) for s, v in zip(sentences, embed(sentences).tolist())])
store.delete_documents(sentences[:1])
print([d.id for d in store.search(embed(sentences[10:11])[0].tolist(), 1)] == [sentences[11]], flush=True)
store.delete_documents(sentences[1:2])
"""


@pytest.mark.parametrize("factory", ["ITQ,IVF4,Flat", "PRH,IVF4,Flat"])
@pytest.mark.parametrize(("client", "program"), [("llamaindex", IN_LLAMAINDEX), ("haystack", IN_HAYSTACK)])
def test_deleting_from_inverted_lists_with_an_id_map(client, program, factory):
    """Faiss's IDMap takes the others to move up, which those in inverted lists do not; at a second time it notices."""
    recipe(client)
    program = f"import sys\nfrom hashed_words import embed, texts\nsentences, _ = texts({N}){program}print('twice')"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, factory], cwd=EXAMPLES, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("True\n", -signal.SIGABRT), done.stderr


def test_llamaindex_gives_an_id_twice_after_a_deletion(llamaindex, corpus):
    """It takes the number of vectors for the next id. With a stock index, so that it is clear whose doing this is."""
    sentences = corpus[0]
    store = llamaindex.FaissMapVectorStore(faiss.index_factory(D, "IDMap2,Flat"))
    llamaindex.add(store, sentences[:3], sentences[:3])
    store.delete(sentences[0])
    llamaindex.add(store, ["purple unicorn"], ["purple unicorn"])
    assert llamaindex.search(store, sentences[2], 1) == ["purple unicorn"]


# Haystack


@pytest.fixture
def haystack(installed):
    return recipe("haystack")


@pytest.mark.parametrize("factory", ["PRH,Flat", "PRH,LSH", "SRR,Flat", "SRR64,LSH"])
def test_haystack(factory, haystack, corpus, tmp_path):
    sentences, places, queries = corpus
    store = haystack.FAISSDocumentStore(index_string=factory, embedding_dim=D)
    if factory.startswith("PRH"):
        with pytest.raises(RuntimeError, match="is_trained"):
            store.write_documents([haystack.Document(content="untrained", embedding=[0.0] * D)])
        store.delete_all_documents()
        store.index.train(embed(sentences))
    half = N // 2
    for part in slice(0, half), slice(half, N):
        store.write_documents(
            [
                haystack.Document(id=s, content=s, meta={"place": p}, embedding=v)
                for s, p, v in zip(sentences[part], places[part], embed(sentences[part]).tolist(), strict=True)
            ]
        )

    def search(store, query, **options):
        return [document.id for document in store.search(embed([query])[0].tolist(), K, **options)]

    forest = {"field": "meta.place", "operator": "==", "value": "forest"}
    filtered = [search(store, query, filters=forest) for query in queries]
    assert any(filtered) and {s.split()[-1] for result in filtered for s in result} == {"forest"}
    for gone in filtered[0], filtered[1]:
        store.delete_documents(gone)
        sentences = [s for s in sentences if s not in gone]
    found = [search(store, query) for query in queries]
    assert {s for result in found for s in result} <= set(sentences)
    if factory.endswith("Flat"):
        assert found == [nearest(sentences, query) for query in queries]

    store.save(tmp_path / "index")
    store.save(tmp_path / "index")
    loaded = haystack.FAISSDocumentStore(str(tmp_path / "index"), index_string=factory, embedding_dim=D)
    assert share([search(loaded, query) for query in queries], found) >= 0.99
    loaded.delete_documents(found[0][:1])
    assert found[0][0] not in search(loaded, queries[0])


def test_haystack_takes_only_float_indexes(haystack):
    """It puts what the factory makes into an IndexIDMap of its own."""
    with pytest.raises((TypeError, NotImplementedError)):
        haystack.FAISSDocumentStore(index_string="PRH,BFlat", embedding_dim=D)


# txtai

TXTAI = ["IDMap,PRH,Flat", "IDMap2,PRH,SQ8", "PRH,IVF8,Flat", "IDMap2,PRH,BFlat,RFlat", "IDMap2,PRH,BFlat,RAsym"]


@pytest.fixture
def txtai(installed):
    return recipe("txtai")


@pytest.mark.parametrize("factory", TXTAI)
def test_txtai(factory, txtai, corpus, tmp_path):
    sentences, places, queries = corpus
    embeddings = txtai.create(factory)
    half = N // 2
    rows = [(s, {"text": s, "place": p}) for s, p in zip(sentences, places, strict=True)]
    embeddings.index(rows[:half])
    embeddings.upsert(rows[half:])
    exhaustive(embeddings.ann.backend)

    def search(embeddings, query):
        return [row["id"] for row in embeddings.search(query, K)]

    forest = f"select id, place from txtai where similar('{queries[0]}', {N}) and place = 'forest'"
    filtered = embeddings.search(forest, K)
    assert {row["place"] for row in filtered} == {"forest"}
    embeddings.delete([row["id"] for row in filtered])
    sentences = [s for s in sentences if s not in {row["id"] for row in filtered}]
    embeddings.delete(sentences[:1])
    sentences = sentences[1:]
    found = [search(embeddings, query) for query in queries]
    assert {s for result in found for s in result} <= set(sentences)
    if factory.endswith("Flat"):  # inner products of vectors of length 1 rank as distances do
        assert found == [nearest(sentences, query) for query in queries]

    embeddings.save(str(tmp_path / "index"))
    loaded = txtai.Embeddings()
    loaded.load(str(tmp_path / "index"), config={"transform": embed})
    exhaustive(loaded.ann.backend)
    assert share([search(loaded, query) for query in queries], found) >= 0.99


@pytest.mark.parametrize("transform", ["PCA64", "PRH"])
def test_txtai_sets_nprobe_only_without_transforms(transform, txtai, corpus):
    for factory, nprobe in ("IVF8,Flat", 6), (f"{transform},IVF8,Flat", 1):
        embeddings = txtai.create(factory)
        embeddings.index((s, {"text": s}) for s in corpus[0])
        embeddings.search(corpus[0][0])
        assert faiss.extract_index_ivf(embeddings.ann.backend).nprobe == nprobe


# autofaiss

UNCLOSED = "ignore:.*Implicitly cleaning up|.*finalize object"  # folders that autofaiss leaves to the garbage collector


@pytest.fixture
def autofaiss(installed):
    return recipe("autofaiss")


@pytest.mark.filterwarnings(UNCLOSED)
@pytest.mark.parametrize(
    ("factory", "metric"), [("PRH,IVF8,Flat", "l2"), ("PRH,IVF8,Flat", "ip"), ("PRH,IVF8,SQ8", "l2"), ("SRR,LSH", "l2")]
)
def test_autofaiss(factory, metric, autofaiss, corpus, tmp_path):
    sentences, _, queries = corpus
    path = tmp_path / "knn.index"
    built, infos = autofaiss.build_index(
        embed(sentences),
        index_key=factory,
        index_param="nprobe=8" if "IVF" in factory else "",
        index_path=str(path),
        index_infos_path=str(tmp_path / "infos.json"),
        metric_type=metric,
    )
    assert infos["nb vectors"] == N
    index = faiss.read_index(str(path))
    found = built.search(embed(queries), K)[1]
    exhaustive(index)
    assert share(index.search(embed(queries), K)[1], found) >= 0.99
    if factory.endswith("Flat"):
        assert [[sentences[i] for i in ids] for ids in found] == [nearest(sentences, query) for query in queries]
        scores = importlib.import_module("autofaiss").score_index(str(path), embed(sentences), save_on_disk=False)
        assert scores["1-recall@20"] > 0.99


@pytest.mark.filterwarnings(UNCLOSED)
def test_autofaiss_takes_only_float_indexes(autofaiss, corpus):
    with pytest.raises(TypeError, match="ParameterSpace"):
        autofaiss.build_index(
            embed(corpus[0]), index_key="PRH,BIVF8", index_param="nprobe=8", metric_type="l2", save_on_disk=False
        )


# sentence-transformers


@pytest.mark.parametrize("library", ["faiss", "usearch"])
@pytest.mark.parametrize("bits", [D, 64, 100])
def test_sentence_transformers(library, bits, corpus, tmp_path):
    module = recipe("sentence_transformers")
    sentences, _, queries = corpus
    vectors, xq = embed(sentences), embed(queries)
    prh = faiss_prh.PRHTransform(D, bits)
    prh.train(vectors)
    codes = prh.encode(vectors, bitorder="big")
    quantize = importlib.import_module("sentence_transformers.util.quantization").quantize_embeddings
    np.testing.assert_array_equal(codes, quantize(prh.apply(vectors), "ubinary"))

    flat = faiss.IndexBinaryFlat(8 * codes.shape[1])
    flat.add(codes)
    expected, _ = flat.search(prh.encode(xq, bitorder="big"), K)
    search = module.LIBRARIES[library]
    options = {"corpus_precision": "ubinary", "top_k": K}
    results, _, index = search(prh.apply(xq), codes, rescore=False, output_index=True, **options)
    assert [[hit["score"] for hit in hits] for hits in results] == expected.tolist()

    # Ranked again: the sum of those values of the query whose bit is set.
    found = module.search(prh, library, xq, codes, K)
    shortlist = flat.search(prh.encode(xq, bitorder="big"), 4 * K)[1]
    scores = np.einsum("qd,nd->qn", prh.apply(xq), (prh.apply(vectors) >= 0).astype(float))
    best = np.take_along_axis(shortlist, np.argsort(-np.take_along_axis(scores, shortlist, 1), 1)[:, :K], 1)
    assert share(found, best) > 0.95  # ties at the end of the shortlist

    # The encoder and the index in files, and what is deleted does not come back.
    (tmp_path / "encoder").write_bytes(prh.to_bytes())
    prh = faiss_prh.PRHTransform.from_bytes((tmp_path / "encoder").read_bytes())
    if library == "faiss":
        faiss.write_index_binary(index, str(tmp_path / "index"))
        index = faiss.read_index_binary(str(tmp_path / "index"))
    else:
        index.save(str(tmp_path / "index"))
        index = type(index).restore(str(tmp_path / "index"))
    again, _ = search(prh.apply(xq), corpus_index=index, rescore=False, **options)
    assert [[hit["score"] for hit in hits] for hits in again] == expected.tolist()
    gone = again[0][0]["corpus_id"]
    if library == "usearch":  # a flat index of Faiss's moves the others up
        index.remove(gone)
        again, _ = search(prh.apply(xq), corpus_index=index, rescore=False, **options)
        assert gone not in [hit["corpus_id"] for hit in again[0]]


# The recipes


@pytest.mark.filterwarnings(UNCLOSED)
@pytest.mark.parametrize("client", NEEDS)
def test_recipe(client, capsys, installed):
    recipe(client).main(n=800)
    printed = dict(re.findall(r"^(.*?): (.*)$", capsys.readouterr().out, re.MULTILINE))
    if client == "sentence_transformers":
        assert all(float(value.split()[-1]) > 0.7 for value in printed.values()) and len(printed) == 2
        return
    assert all("red" in s or "fox" in s or "sleeps" in s for s in eval(printed["nearest"]))
    before, after = ("in the forest", "in the forest, without those")
    if client == "llamaindex":
        before, after = ("nearest", "without those")
    if client != "autofaiss":
        assert eval(printed[after]) and not set(eval(printed[before])) & set(eval(printed[after]))
