"""
PRH in Haystack's FAISSDocumentStore, which takes a factory string: `install` teaches it to Faiss.

Besides faiss-prh, it needs: pip install faiss-haystack
"""

import tempfile

from hashed_words import D, embed, texts
from haystack import Document
from haystack_integrations.document_stores.faiss import FAISSDocumentStore

import faiss_prh

faiss_prh.install()


def create(vectors, factory="PRH,LSH"):
    """Return a store without documents. It never trains its index: do that, or use SRR, which needs no training."""
    store = FAISSDocumentStore(index_string=factory, embedding_dim=D)
    store.index.train(vectors)
    return store


def main(n=2000):
    """Store sentences, search, delete, save and load."""
    sentences, places = texts(n)
    vectors = embed(sentences)
    store = create(vectors)
    store.write_documents(
        [
            Document(id=sentence, content=sentence, meta={"place": place}, embedding=vector.tolist())
            for sentence, place, vector in zip(sentences, places, vectors, strict=True)
        ]
    )
    query = embed(["red fox sleeps"])[0].tolist()
    forest = {"field": "meta.place", "operator": "==", "value": "forest"}
    print("nearest:", [document.content for document in store.search(query, top_k=3)])
    found = [document.content for document in store.search(query, top_k=10, filters=forest)]
    print("in the forest:", found)
    store.delete_documents(found)

    with tempfile.TemporaryDirectory() as folder:
        store.save(f"{folder}/index")
        store = FAISSDocumentStore(f"{folder}/index", index_string="PRH,LSH", embedding_dim=D)
    print("in the forest, without those:", [d.content for d in store.search(query, top_k=10, filters=forest)])


if __name__ == "__main__":
    main()
