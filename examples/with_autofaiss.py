"""
PRH in autofaiss, which takes a factory string: `install` teaches it to Faiss.

Besides faiss-prh, it needs: pip install autofaiss
"""

import logging
import tempfile

import faiss
from autofaiss import build_index
from hashed_words import embed, texts

import faiss_prh

faiss_prh.install()


def main(n=4000):
    """Build an index of sentences, which autofaiss trains and saves; read it, search."""
    sentences, _ = texts(n)
    with tempfile.TemporaryDirectory() as folder:
        _, infos = build_index(
            embed(sentences),
            index_key="PRH,IVF64,Flat",
            index_param="nprobe=8",
            index_path=f"{folder}/index",
            index_infos_path=f"{folder}/infos.json",
            metric_type="l2",
            verbose=logging.WARNING,
        )
        index = faiss.read_index(f"{folder}/index")
    print("bytes:", infos["size in bytes"])
    _, ids = index.search(embed(["red fox sleeps"]), 3)
    print("nearest:", [sentences[i] for i in ids[0]])


if __name__ == "__main__":
    main()
