"""The `faiss-prh` command."""
