"""Made-up texts, and vectors for them: in the recipes this stands for your texts and your model."""

import functools
import itertools
import zlib

import numpy as np

D = 128
COLOURS = ["black", "blue", "brown", "green", "grey", "orange", "red", "white", "yellow"]
ANIMALS = ["bear", "cat", "crow", "dog", "fox", "frog", "goat", "hare", "horse", "mouse", "owl", "wolf"]
VERBS = ["drinks", "eats", "hides", "jumps", "plays", "rests", "runs", "sings", "sleeps", "waits"]
PLACES = ["barn", "field", "forest", "garden", "house", "river", "snow"]


def texts(n):
    """Return n different sentences of four words, and their places."""
    sentences = list(itertools.product(COLOURS, ANIMALS, VERBS, PLACES))
    chosen = np.random.default_rng(0).permutation(len(sentences))[:n]
    return [" ".join(sentences[i]) for i in chosen], [sentences[i][-1] for i in chosen]


def embed(sentences):
    """Return a vector of length 1 for each sentence: the sum of those of its words."""
    vectors = np.array([sum(map(_of_word, sentence.split())) for sentence in sentences])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype("float32")


@functools.cache
def _of_word(word):
    return np.random.default_rng(zlib.crc32(word.encode())).normal(size=D)  # random, but always the same
