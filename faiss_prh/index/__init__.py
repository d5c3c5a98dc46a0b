"""Floats in, a Faiss binary index inside."""
