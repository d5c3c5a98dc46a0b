"""
PRH in txtai, which takes a factory string: `install` teaches it to Faiss.

Besides faiss-prh, it needs: pip install txtai
"""

import tempfile

import faiss_prh

faiss_prh.install()  # before txtai is imported: it takes functions out of Faiss

from hashed_words import embed, texts  # noqa: E402
from txtai import Embeddings  # noqa: E402


def create(factory="IDMap,PRH,SQ8"):
    """Return embeddings without texts. They train their index themselves, and compare by inner product."""
    return Embeddings(method="external", transform=embed, backend="faiss", content=True, faiss={"components": factory})


def main(n=2000):
    """Index sentences, search, delete, save and load."""
    sentences, places = texts(n)
    embeddings = create()
    embeddings.index(
        (sentence, {"text": sentence, "place": place}) for sentence, place in zip(sentences, places, strict=True)
    )
    print("nearest:", [found["text"] for found in embeddings.search("red fox sleeps", 3)])
    query = "select id, text from txtai where similar('red fox sleeps', 500) and place = 'forest'"
    found = embeddings.search(query, 3)
    print("in the forest:", [row["text"] for row in found])
    embeddings.delete([row["id"] for row in found])

    with tempfile.TemporaryDirectory() as folder:
        embeddings.save(folder)
        embeddings = Embeddings()
        embeddings.load(folder, config={"transform": embed})  # of which the file has only the name
    print("in the forest, without those:", [row["text"] for row in embeddings.search(query, 3)])


if __name__ == "__main__":
    main()
