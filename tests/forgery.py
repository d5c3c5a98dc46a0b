"""Index files that are whole, with anything in them."""

import io
import json
import struct

import faiss_prh
from faiss_prh.storage.container import ChunkWriter
from faiss_prh.storage.records import RecordWriter
from faiss_prh.storage.tree import write_thing


class _Collected:
    """Keeps what a `RecordWriter` writes, piece by piece."""

    def __init__(self):
        self.parts = []

    def write(self, data):
        self.parts.append(bytes(data))


def parts_of(index):
    """Return the contents of an index file: records as dictionaries, arrays (or their pieces) as bytes."""
    out = _Collected()
    RecordWriter(out, write_thing).write(index)
    return [_record(part) or part for part in out.parts]


def _record(part):
    try:
        fields = json.loads(part[4:])
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def as_file(*parts):
    """Return a file with right checksums around parts."""
    file = io.BytesIO()
    writer = ChunkWriter(file)
    for part in parts:
        if isinstance(part, dict):
            part = json.dumps(part).encode()
            writer.write(struct.pack("<I", len(part)))
        writer.write(part)
    writer.finish()
    return file.getvalue()


def place_of(parts, kind):
    """Return where the first record of a kind is."""
    return next(n for n, part in enumerate(parts) if isinstance(part, dict) and part["type"] == kind)


def with_fields(parts, kind, **changes):
    """Return parts with other fields in the first record of a kind."""
    place = place_of(parts, kind)
    return [*parts[:place], parts[place] | changes, *parts[place + 1 :]]


def with_array(parts, kind, number, change):
    """Return parts with another array: that many places after the first record of a kind."""
    place = place_of(parts, kind) + 1 + number
    return [*parts[:place], bytes(change(parts[place])), *parts[place + 1 :]]


def read(parts, trusted=False):
    return faiss_prh.deserialize_index(as_file(*parts), trusted=trusted)
