"""`python -m faiss_prh.cli` is `faiss-prh`."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
