"""Measurements of faiss-prh against its rivals: `python -m bench --help`."""
