"""The graph of an HNSW index: as arrays, and whether it can be walked."""

from __future__ import annotations

from typing import Any, NamedTuple

import faiss
import numpy as np

from .._common.types import Doubles, Ids, Indices
from .limits import MOST_NEIGHBOURS, Flaw
from .records import Fields, RecordReader, RecordWriter


class Graph(NamedTuple):
    """
    A graph of several levels.

    Attributes
    ----------
    rooms : ndarray of int32
        For each level, and the one above the last, the neighbours of a vertex that all levels below it have room for.
    probabilities : ndarray of float64
        How likely a new vertex is to have a level as its highest.
    levels : ndarray of int32
        For each vertex, the number of its levels.
    neighbours : ndarray of int32
        For each vertex, level by level, its neighbours; -1 where there is none.
    entry_point, max_level : int
        Where a search begins; both -1 if the graph is empty.
    """

    rooms: Indices
    probabilities: Doubles
    levels: Indices
    neighbours: Indices
    entry_point: int
    max_level: int

    @classmethod
    def of(cls, hnsw: Any, n: int) -> Graph:
        """Return the graph of Faiss's HNSW, or raise a Flaw if it is not one of n vertices that can be walked."""
        names = ("cum_nneighbor_per_level", "assign_probas", "levels", "neighbors")
        rooms, probabilities, levels, neighbours = (faiss.vector_to_array(getattr(hnsw, name)) for name in names)
        graph = cls(rooms, probabilities, levels, neighbours, hnsw.entry_point, hnsw.max_level)
        graph.check()
        _expect(len(levels) == n, f"a graph of {len(levels)} vertices for {n} vectors")
        return graph

    @classmethod
    def read(cls, source: RecordReader, fields: Fields) -> Graph:
        """Return the graph that comes next."""
        n_levels = fields["n_levels"]
        rooms, probabilities = source.array("<i4", n_levels + 1), source.array("<f8", n_levels)
        levels = source.array("<i4", fields["ntotal"])
        check_levels(rooms, levels)
        neighbours = source.array("<i4", int(rooms[levels].sum(dtype=np.int64)))
        graph = cls(rooms, probabilities, levels, neighbours, fields["entry_point"], fields["max_level"])
        graph.check()
        return graph

    def fields(self) -> dict[str, int]:
        """Return what the record of a graph says before its arrays."""
        return {"n_levels": len(self.probabilities), "max_level": self.max_level, "entry_point": self.entry_point}

    def write(self, out: RecordWriter) -> None:
        """Write the arrays."""
        out.array(self.rooms, "<i4")
        out.array(self.probabilities, "<f8")
        out.array(self.levels, "<i4")
        out.array(self.neighbours, "<i4")

    @property
    def links(self) -> int:
        """The neighbours of a vertex on the highest level: what Faiss's constructors ask for."""
        return max(2, int(self.rooms[-1] - self.rooms[-2]))

    def give(self, hnsw: Any) -> None:
        """Make this the graph of Faiss's HNSW."""
        for name, values in (
            ("cum_nneighbor_per_level", self.rooms),
            ("assign_probas", self.probabilities),
            ("levels", self.levels),
            ("offsets", self.offsets().astype(np.uint64)),
            ("neighbors", self.neighbours),
        ):
            faiss.copy_array_to_vector(values, getattr(hnsw, name))
        hnsw.entry_point, hnsw.max_level = self.entry_point, self.max_level

    def offsets(self) -> Ids:
        """Return where the neighbours of each vertex begin, and where they end."""
        return np.concatenate([[0], np.cumsum(self.rooms[self.levels], dtype=np.int64)])

    def check(self) -> None:
        """Raise a Flaw if a search could leave the graph, or never end."""
        check_levels(self.rooms, self.levels)
        n, levels, neighbours, offsets = len(self.levels), self.levels, self.neighbours, self.offsets()
        _expect(len(neighbours) == offsets[-1], f"{len(neighbours)} neighbours instead of {offsets[-1]}")
        _expect(((neighbours >= -1) & (neighbours < n)).all(), "an edge to no vertex")
        if n:
            is_there = 0 <= self.entry_point < n and levels[self.entry_point] - 1 == self.max_level
            _expect(is_there, "no way into the graph")
        else:
            _expect(self.entry_point == -1 and self.max_level == -1, "a way into an empty graph")
        for level in range(1, int(levels.max(initial=0))):
            there = np.flatnonzero(levels > level)
            places = offsets[there, None] + np.arange(self.rooms[level], self.rooms[level + 1])
            found = neighbours[places]
            _expect((levels[found[found >= 0]] > level).all(), "an edge to a vertex below its level")


def search_fields(hnsw: Any) -> dict[str, int]:
    """Return how Faiss's HNSW builds and searches its graph."""
    return {"efConstruction": hnsw.efConstruction, "efSearch": hnsw.efSearch}


def give_search_fields(hnsw: Any, fields: Fields) -> None:
    """Let Faiss's HNSW build and search its graph as a record says."""
    hnsw.efConstruction, hnsw.efSearch = fields["efConstruction"], fields["efSearch"]


def check_levels(rooms: Indices, levels: Indices) -> None:
    """Raise a Flaw for levels that cannot be."""
    room = np.diff(rooms.astype(np.int64))
    _expect(rooms[0] == 0, "a graph without levels")
    _expect(((room > 0) & (room <= MOST_NEIGHBOURS)).all(), "levels without room for neighbours, or with too much")
    _expect(((levels >= 1) & (levels < len(rooms))).all(), "a vertex on no level")


def _expect(is_so: bool | np.bool_, otherwise: str) -> None:
    if not is_so:
        raise Flaw(otherwise)
