"""The same as `_native`, in NumPy: for machines without a compiler, and for a Faiss that native code does not know."""
