"""What is refused because Faiss would take too much memory or time, or crash."""

from __future__ import annotations

import faiss

METRICS = frozenset(getattr(faiss, name) for name in dir(faiss) if name.startswith("METRIC_"))
MOST_LISTS = 1 << 24
