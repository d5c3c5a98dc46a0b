"""Bytes and factory strings that are nearly right: what a fuzzer feeds to readers."""

import io
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import faiss
import numpy as np

from faiss_prh import PairwiseRotation, PRHTransform, clone_index, index_factory
from faiss_prh.learning.model import Model
from faiss_prh.storage.container import ChunkWriter
from faiss_prh.storage.limits import KINDS
from faiss_prh.storage.records import RecordWriter
from faiss_prh.storage.tree import write_thing

D = 16
DESCRIPTIONS = (
    "PRH,BFlat", "PRH(1,1),BIVF4", "PRH(2),BIVF4_HNSW8", "PCA9,PRH(1),BHNSW8", "ITQ8,BHash1x6",
    "L2norm,PRH(1),BHash2x6", "IDMap2,RR16,BFlat", "PRH8,BFlat,RFlat", "PRH(1),BIVF4,RFlat",
    "IDMap2,PRH(1),BIVF4,Refine(SQ8)", "PRH(1,1),BFlat,RAsym", "PRH(1),BIVF4,RAsym",
    "IDMap,PCAW8,PRH(1),BHNSW8,RAsym", "IDMap,PRH(1),BIVF4", "Pad16,PRH8,BIVF2,Refine(SQ4)",
    "OPQ4_8,PRH,BHNSW4,Refine(SQfp16)", "IDMap2,PRH(1),BHash2x4,RFlat", "PRH20,BIVF3,RAsym", "BHNSW2",
    "IDMap,BIVF4_HNSW4", "PRH(1),LSH", "IDMap2,PRH(1),IVF4,Flat,RFlat", "ITQ8,BHash6",
    "PRH(1),IVF4,Signs", "PCA9,PRH(1),IVF4_HNSW4,Signs", "PRH8,IVF4,Signs,RFlat",
    "IDMap,PRH20,IVF3_HNSW2,Signs,Refine(SQ8)", "RR16,IVF2,Signs,RFlat",
)  # fmt: skip
PRODUCTS = (
    "PRH(1),BFlat,RAsym", "IDMap2,L2norm,PRH8,BIVF4,RAsym", "PRH(1),BFlat,RFlat", "PRH(1),IVF4,Signs",
    "IDMap,RR16,IVF2_HNSW4,Signs,RFlat",
)  # fmt: skip
"""Of indexes that rank by inner products."""
OTHER_WORDS = (
    "PRH", "PRH64", "PRH(1,2,0.5)", "BFlat", "BIVF", "BIVF1M", "_HNSW", "BHNSW32", "BHash8", "BHash4x8", "RFlat",
    "RAsym", "Signs", "Refine(", ")", "(", ",", "IDMap", "IDMap2", "Flat", "IVF16", "PQ4", "SQ4", "LSH", "PCA",
    "PCAWR4", "ITQ4", "OPQ2", "Pad20", "HR", "NSG", "RaBitQ", "x", "fs", "k", "M", ".", "-1", "e9", "\0", "é", "٣",
    "\udc80",
)  # fmt: skip
WHOLE_NUMBERS = (
    0, 1, 2, 3, 7, 8, 15, 16, 100, 255, 256, 4096, 65535, 65536, 1 << 20, 1 << 24, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 1, 1 << 32, 1 << 39, 1 << 40, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip
VALUES = (*WHOLE_NUMBERS[:20], -1, -5, 0.5, 1e308, -1e308, float("nan"), float("inf"), None, True, "1", "", [1, 2, 3])
Parts = list[bytes]


def filled(description: str, metric: int = faiss.METRIC_L2) -> Iterator[Any]:
    """Return small indexes: an empty one, one of one vector, and one of some."""
    x = np.random.default_rng(0).normal(size=(300, D)).astype(np.float32)
    trained = index_factory(D, description, metric)
    if isinstance(trained, faiss.IndexBinary):
        x = np.packbits(x > 0, axis=1)
    trained.train(x)
    for n in (0, 1, 40):
        index = clone_index(trained)
        if "IDMap" in description:
            index.add_with_ids(x[:n], np.arange(n) * 7 + 3)
        elif n:
            index.add(x[:n])
        yield index


class _Collected:
    """Keeps what a `RecordWriter` writes field by field, as it comes."""

    def __init__(self) -> None:
        self.parts: Parts = []

    def write(self, data: bytes) -> None:
        self.parts.append(bytes(data))


def parts_of(index: Any) -> Parts:
    """Return the contents of an index file, cut where its fields end."""
    out = _Collected()
    RecordWriter(out, write_thing).write(index)  # type: ignore[arg-type]
    return out.parts


def as_file(parts: Parts) -> bytes:
    """Return contents as an index file whose checksums, inner ones too, are right."""
    file = io.BytesIO()
    writer = ChunkWriter(file)
    for part in parts:
        writer.write(signed(part[:-4]) if part.startswith(b"FAISSPRH") else part)
    writer.finish()
    return file.getvalue()


def signed(content: bytes) -> bytes:
    return content + struct.pack("<I", zlib.crc32(content))


def _record(part: bytes) -> dict[str, Any] | None:
    """Return the fields of a record, if that is what a part is."""
    try:
        fields = json.loads(part[4:])
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def with_tail() -> PRHTransform:
    """Return a transform with rotations and a dense tail, as it is learned for few bits of very many dimensions."""
    transform, kept = PRHTransform(D, 3), np.arange(9, dtype=np.int32)
    tail = np.linalg.qr(np.random.default_rng(1).normal(size=(9, 3)))[0].T.astype(np.float32, order="C")
    transform._set(Model(PairwiseRotation.random(D, 2, seed=1), np.zeros(D, np.float32), kept, 0.5, 0.5, tail))
    return transform


class Mutator:
    """Makes one input after the other from a seed."""

    def __init__(self) -> None:
        self.begin(0)
        described = [(description, faiss.METRIC_L2) for description in DESCRIPTIONS]
        described += [(description, faiss.METRIC_INNER_PRODUCT) for description in PRODUCTS]
        self._files = [parts_of(index) for one in described for index in filled(*one)]
        prh = [PRHTransform(D), PRHTransform.random(5), *(PRHTransform(D, bits) for bits in (1, 8, 12, 20))]
        for transform in prh[2:]:
            transform.train(np.random.default_rng(1).normal(size=(50, D)))
        prh.append(with_tail())
        self._transforms = [transform.to_bytes() for transform in prh]
        self._changes: Sequence[Callable[[bytes], bytes]] = (
            self._flip, self._cut, self._insert, self._repeat, self._number, self._number, self._number,
        )  # fmt: skip

    def begin(self, seed: int) -> None:
        """Make from now on what follows from a seed."""
        self._random = random.Random(seed)

    def index_file(self) -> bytes:
        """Return a changed index file, most often one with right checksums."""
        choose = self._random
        parts = list(choose.choice(self._files))
        if choose.random() < 0.1:
            return self._change(as_file(parts))
        for _ in range(choose.choice((1, 1, 1, 2, 3))):
            if choose.random() < 0.15:
                parts = self._rearrange(parts)
            if parts:
                place = choose.randrange(len(parts))
                parts[place] = self._change_part(parts[place])
        return as_file(parts)

    def transform(self) -> bytes:
        """Return the bytes of a changed transform, most often with a right checksum."""
        data = self._random.choice(self._transforms)
        if self._random.random() < 0.1:
            return self._change(data)
        content = data[:-4]
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            content = self._change(content)
        return signed(content)

    def factory_arguments(self) -> bytes:
        """Return, as JSON, a dimension and a factory string that is nearly one."""
        choose = self._random
        text = choose.choice(DESCRIPTIONS)
        for _ in range(choose.choice((1, 1, 2, 3))):
            place, end = sorted((choose.randint(0, len(text)), choose.randint(0, len(text))))
            piece = choose.choice((str(choose.choice(WHOLE_NUMBERS)), choose.choice(OTHER_WORDS), text[place:end], ""))
            text = text[:place] + piece + text[choose.choice((place, end, place + 1)) :]
        d = choose.choice((D, D, D, 1, 8, 64, choose.choice((*WHOLE_NUMBERS, -1))))
        return json.dumps([d, text]).encode()

    def _rearrange(self, parts: Parts) -> Parts:
        choose = self._random
        first, last = sorted((choose.randint(0, len(parts)), choose.randint(0, len(parts))))
        other = choose.choice(self._files)
        return choose.choice((
            parts[:first] + other[choose.randint(0, len(other)) :],
            parts[:first] + parts[last:],
            parts[:last] + parts[first:],
        ))  # fmt: skip

    def _change_part(self, part: bytes) -> bytes:
        fields = _record(part) if self._random.random() < 0.8 else None
        if fields:
            name = self._random.choice(list(fields))
            if name == "type":
                fields[name] = self._random.choice(sorted(KINDS))
            else:
                fields[name] = self._random.choice(VALUES)
            record = json.dumps(fields).encode()
            return struct.pack("<I", len(record)) + record
        return self._change(part)

    def _change(self, data: bytes) -> bytes:
        return self._random.choice(self._changes)(data)

    def _flip(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self._random.choice((1, 1, 2, 8)) if data else 0):
            changed[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        return bytes(changed)

    def _cut(self, data: bytes) -> bytes:
        return data[: self._random.randint(0, len(data))]

    def _insert(self, data: bytes) -> bytes:
        place = self._random.randint(0, len(data))
        return data[:place] + self._random.randbytes(self._random.choice((1, 4, 8, 100))) + data[place:]

    def _repeat(self, data: bytes) -> bytes:
        first, last = sorted((self._random.randint(0, len(data)), self._random.randint(0, len(data))))
        return data[:last] + data[first:]

    def _number(self, data: bytes) -> bytes:
        """Put a number that is at some limit in the place of another."""
        width = self._random.choice([width for width in (1, 2, 4, 8) if width <= len(data)] or [0])
        if not width:
            return data
        place = self._random.randrange(0, len(data) - width + 1, self._random.choice((1, width)))
        if width >= 4 and self._random.random() < 0.2:
            value = self._random.choice((float("nan"), float("inf"), -1.0, 1e38, 0.0))
            number = struct.pack("<f" if width == 4 else "<d", value)
        else:
            value = self._random.choice(WHOLE_NUMBERS) % (1 << 8 * width)
            number = value.to_bytes(width, "little")
        return data[:place] + number + data[place + width :]
