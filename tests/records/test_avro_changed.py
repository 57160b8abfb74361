"""Avro's records of a schema that changed, read by another one: against fastavro; defaults that are none."""

from __future__ import annotations

import io
import random
from typing import Any, ClassVar

import fastavro
import numpy as np
import pytest

from tests.records.test_avro import ROWS, Draw, decode_records, encode_record, same
from watersmeet.spec.records.avro import Misfit


class Evolved:
    """A reader's schema of a writer's: fields moved, added, dropped, renamed, of wider types."""

    TYPES: ClassVar[dict[str, tuple[str, ...]]] = {
        "int": ("INT", "BIGINT", "DOUBLE"),
        "long": ("BIGINT",),
        "float": ("FLOAT", "DOUBLE"),
        "string": ("STRING", "BINARY"),
        "bytes": ("BINARY",),
    }
    READ_AS: ClassVar[dict[str, str]] = {
        "INT": "int", "BIGINT": "long", "DOUBLE": "double", "FLOAT": "float", "STRING": "string",
        "BINARY": "bytes",
    }  # fmt: skip
    DEFAULTS: ClassVar[list[tuple[Any, str, Any, Any]]] = [
        ("int", "BIGINT", -(2**31), -(2**31)),
        (["null", "long"], "BIGINT", None, None),
        (["long", "null"], "BIGINT", 2**62, 2**62),
        ("string", "STRING", "é", "é"),
        ("bytes", "BINARY", "\u00ff\u0000", b"\xff\0"),
        ("double", "DOUBLE", 1, 1.0),
        ("boolean", "BOOLEAN", False, False),
        ({"type": "array", "items": "int"}, "ARRAY<INT>", [1, -2], [1, -2]),
        ({"type": "map", "values": "string"}, "MAP<STRING, STRING>", {"a": "b"}, {"a": "b"}),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "STRING", "B", "B"),
    ]  # fmt: skip

    def __init__(self, rng: random.Random) -> None:
        writer: list[Any] = []
        reader: list[tuple[Any, str]] = []
        for n in range(rng.randrange(1, 7)):
            kind = rng.choice([*self.TYPES])
            several = rng.random() < 0.3
            writer.append({"name": f"w{n}", "type": ["null", kind] if several else kind})
            if rng.random() < 0.3:
                continue
            type_ = rng.choice(self.TYPES[kind])
            name = f"r{n}" if rng.random() < 0.3 else f"w{n}"
            read_as = self.READ_AS[type_]
            field = {"name": name, "type": ["null", read_as] if several else read_as}
            reader.append((field if name == f"w{n}" else {**field, "aliases": ["no", f"w{n}"]}, type_))
        added = rng.sample(self.DEFAULTS, rng.randrange(1, 4))
        for n, (schema, type_, default, _) in enumerate(added):
            reader.append(({"name": f"a{n}", "type": schema, "default": default}, type_))
        self.added = {f"a{n}": value for n, (*_, value) in enumerate(added)}
        rng.shuffle(reader)
        self.writer = {"type": "record", "name": "R", "fields": writer}
        self.reader = {"type": "record", "name": "R", "fields": [field for field, _ in reader]}
        self.types = [type_ for _, type_ in reader]


@pytest.mark.parametrize("number", range(30))
def test_random_schemas_that_changed(seed, number):
    """As fastavro resolves the two; it hands on defaults of bytes as they are written."""
    rng = random.Random(f"changed {seed} {number}")
    changed, draw = Evolved(rng), Draw(rng, 1)

    def value(kind: Any) -> Any:
        if isinstance(kind, list):
            return None if rng.random() < 0.4 else value(kind[1])
        if kind == "float":
            return float(np.float32(rng.gauss(0, 10)))
        if kind == "bytes":
            return rng.randbytes(rng.randrange(9))
        return draw.text() if kind == "string" else draw.number(32 if kind == "int" else 64)

    rows = [{f["name"]: value(f["type"]) for f in changed.writer["fields"]} for _ in range(ROWS)]
    records = [encode_record(changed.writer, row) for row in rows]
    schemas = [fastavro.parse_schema(each) for each in (changed.writer, changed.reader)]
    for found, raw in zip(
        decode_records(changed.writer, changed.types, records, changed.reader), records, strict=True
    ):
        wanted = fastavro.schemaless_reader(io.BytesIO(raw), *schemas)
        assert same(found, wanted | changed.added), (changed.writer, changed.reader, found, wanted)


@pytest.mark.parametrize(
    ("schema", "type_", "default"),
    [
        ("int", "BIGINT", 2**31),
        ("int", "BIGINT", True),
        ("long", "BIGINT", "1"),
        ({"type": "int", "logicalType": "date"}, "DATE", 2_932_897),
        ({"type": "int", "logicalType": "date"}, "DATE", -719_163),
        ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP", 2**62),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, "DECIMAL(2,0)", "\u0064"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, "DECIMAL(2,0)", ""),
        ({"type": "fixed", "name": "F", "size": 2}, "BINARY", "a"),
        ("bytes", "BINARY", "\u0100"),
        ({"type": "array", "items": "string"}, "ARRAY<STRING>", "ab"),
        ({"type": "map", "values": "int"}, "MAP<STRING, INT>", ["a"]),
        ({"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}]}, "STRUCT<n: INT>", "n"),
        ({"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}]}, "STRUCT<n: INT>", {}),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "STRING", "B"),
        ("double", "DOUBLE", "NaN"),
        (["null", "int"], "INT", "x"),
    ],
)
def test_a_default_that_is_none_of_its_type_is_refused(schema, type_, default):
    """Before there is a record: nothing of it reaches a task."""
    reader = {"type": "record", "name": "R", "fields": [{"name": "f0", "type": schema, "default": default}]}
    with pytest.raises(Misfit, match='the default of "f0" is no'):
        decode_records({"type": "record", "name": "R", "fields": []}, [type_], [], reader)
