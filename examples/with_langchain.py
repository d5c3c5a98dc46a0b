"""
PRH in LangChain's FAISS store, which saves and loads it as any other index of Faiss.

Besides faiss-prh, it needs: pip install langchain-community
"""

import tempfile

from hashed_words import embed, texts
from langchain_community.docstore.in_memory import InMemoryDocstore
from langchain_community.vectorstores import FAISS
from langchain_core.embeddings import Embeddings

from faiss_prh import index_factory


class Model(Embeddings):
    """Stands for your embedding model."""

    def embed_documents(self, texts):
        """Return a vector for each text."""
        return embed(texts).tolist()

    def embed_query(self, text):
        """Return the vector of a text."""
        return embed([text])[0].tolist()


def create(vectors, factory="PRH,LSH"):
    """Return a store without documents, whose index has learned from some vectors."""
    index = index_factory(vectors.shape[1], factory)
    index.train(vectors)
    return FAISS(Model(), index, InMemoryDocstore(), {})


def main(n=2000):
    """Store sentences, search, delete, save and load."""
    sentences, places = texts(n)
    store = create(embed(sentences))
    store.add_texts(sentences, [{"place": place} for place in places], ids=[f"text {i}" for i in range(n)])
    query = "red fox sleeps"
    print("nearest:", [document.page_content for document in store.similarity_search(query, k=3)])
    found = store.similarity_search(query, k=3, filter={"place": "forest"}, fetch_k=n)
    print("in the forest:", [document.page_content for document in found])
    store.delete([document.id for document in found])

    with tempfile.TemporaryDirectory() as folder:
        store.save_local(folder)
        # The texts are in a pickle. The index alone can be read with faiss.read_index, also without faiss-prh.
        store = FAISS.load_local(folder, Model(), allow_dangerous_deserialization=True)
    found = store.similarity_search(query, k=3, filter={"place": "forest"}, fetch_k=n)
    print("in the forest, without those:", [document.page_content for document in found])


if __name__ == "__main__":
    main()
