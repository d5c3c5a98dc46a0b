"""
PRH in LlamaIndex's FaissMapVectorStore, which saves and loads it as any other index of Faiss.

Besides faiss-prh, it needs: pip install llama-index-vector-stores-faiss
"""

import os
import tempfile

from hashed_words import embed, texts
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery
from llama_index.vector_stores.faiss import FaissMapVectorStore

from faiss_prh import index_factory


def create(vectors, factory="IDMap2,PRH,LSH"):
    """Return a store without nodes, whose index has learned from some vectors."""
    index = index_factory(vectors.shape[1], factory)
    index.train(vectors)
    return FaissMapVectorStore(index)


def add(store, ids, sentences):
    """Add sentences."""
    vectors = embed(sentences).tolist()
    store.add([TextNode(id_=i, text=s, embedding=v) for i, s, v in zip(ids, sentences, vectors, strict=True)])


def search(store, sentence, k=3):
    """Return the ids of the sentences that are nearest to one."""
    return store.query(VectorStoreQuery(query_embedding=embed([sentence])[0].tolist(), similarity_top_k=k)).ids


def main(n=1000):
    """Store sentences, search, delete, save and load."""
    sentences, _ = texts(n)
    store = create(embed(sentences))
    add(store, sentences, sentences)  # each is its own id
    query = "red fox sleeps"
    found = search(store, query)
    print("nearest:", found)
    store.delete_nodes(found)

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "index.faiss")
        store.persist(path)
        store = FaissMapVectorStore.from_persist_path(path)
    print("without those:", search(store, query))


if __name__ == "__main__":
    main()
