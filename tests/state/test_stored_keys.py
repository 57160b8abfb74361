"""The keys and words of stored JSON are the same in every version, whatever the code calls them.

``stored_keys.txt`` has, per file of a state, the path of each value and what it may be.
WATERSMEET_GOLDEN=write adds new ones, which need a default: files of today lack them. A line that has to
change needs a migration (`state.manifest`).
"""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import Field

from tests.support.package_paths import PACKAGE, find_paths
from watersmeet.history.segments import HistorySegment, RunEnd, RunStart
from watersmeet.history.segments import RunRecord as ShownRun
from watersmeet.kernel.aggregate import AggregateCall, partials_of
from watersmeet.kernel.asof import CAME
from watersmeet.local import async_lookup
from watersmeet.measure import Measure, Measured
from watersmeet.names import copy_name, node_alias
from watersmeet.objects import postgres_store
from watersmeet.observe.row_accounting import InputAccount
from watersmeet.plan.identity import fingerprint
from watersmeet.runtime.coordinator import load_shedding
from watersmeet.runtime.coordinator.table_reads import _ReadInTick
from watersmeet.runtime.files.inference import COLUMNS
from watersmeet.runtime.messages.reports import IngestReport, NodeReport
from watersmeet.runtime.messages.shapes import DELETED
from watersmeet.runtime.messages.work import SNAPSHOTS, NodeWork
from watersmeet.runtime.spark.checkpoint import spark_positions
from watersmeet.runtime.spark.checkpoint.restart import READ
from watersmeet.runtime.spark.sources.files.progress import CHANGED
from watersmeet.sinks.base import recorded_parts
from watersmeet.state import file_lists, last_output, manifest
from watersmeet.state.file_lists import FileList
from watersmeet.state.last_output import LastOutput
from watersmeet.state.manifest import Manifest
from watersmeet.state.runs.layout import ARRIVAL, SLOT, RunKey, least_times, null_column, order_of_times
from watersmeet.state.stored_record import StoredRecord

STORED = Path(__file__).with_name("stored_keys.txt")
HINT = (
    "stored files have other keys. Keep them: in a Record by"
    " `new: int = Field(validation_alias='old', serialization_alias='old')`, in a dataclass by"
    " `Annotated[int, Field(…)]`, in a plan by `old=new` in its row of plan/identity/fingerprint.py"
)
FILES: Mapping[str, type[StoredRecord]] = {
    "manifests": Manifest,
    "manifests, host.files[]": FileList,
    "manifests, host.output": LastOutput,
    "work": NodeWork,
    "work, snapshots": _ReadInTick,
    "parts, shed": load_shedding._ShedDecision,
    "history, begun": RunStart,
    "history, ended": RunEnd,
}
"""Per kind of file, what is in it."""
OF_A_TICK = (IngestReport, NodeReport, ShownRun)
"""Not stored: what tasks tell the driver of the same run, and two records together."""

MEASURES = (("whole", 0), ("decimal", 2), ("real", 0), ("text", 0))

Schema = Mapping[str, Any]


def schema_of(kind: type[StoredRecord], mode: typing.Literal["validation", "serialization"]) -> Schema:
    return kind.model_json_schema(mode=mode)


def keys_in(schema: Schema, whole: Schema, path: str = "") -> Iterator[tuple[str, str]]:
    """Path, and what may be there, of each value that JSON of this schema has."""
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    choices = schema.get("anyOf", [schema])
    if len(choices) > 1:
        inner = [own for choice in choices for own in keys_in(choice, whole, path)]
        yield path, " or ".join(kinds for at, kinds in inner if at == path)
        yield from (own for own in inner if own[0] != path)
        return
    names = schema.get("propertyNames", {}).get("enum")
    yield path, " ".join(map(str, schema.get("enum") or names or [schema.get("type", "anything")]))
    for name, inner_schema in schema.get("properties", {}).items():
        yield from keys_in(inner_schema, whole, f"{path}.{name}".lstrip("."))
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from keys_in(schema["additionalProperties"], whole, f"{path}.*".lstrip("."))
    for number, item in enumerate(schema.get("prefixItems", [])):
        yield from keys_in(item, whole, f"{path}[{number}]")
    if isinstance(schema.get("items"), Mapping):
        yield from keys_in(schema["items"], whole, f"{path}[]")


def lines_of_files() -> Iterator[str]:
    for file, kind in FILES.items():
        whole = schema_of(kind, "serialization")
        lines = list(keys_in(whole, whole))
        for (path, what), (after, _) in pairwise([*lines, ("", "")]):
            if path and not (what in ("object", "array") and after.startswith(path)):
                yield f"{file}: {path}: {what}"


def choices_in(hint: Any) -> Iterator[str]:
    """The words among which a field of this type has one, as they are stored."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        yield from (str(member.value) for member in hint)
    elif typing.get_origin(hint) is typing.Literal:
        yield from map(str, typing.get_args(hint))
    else:
        for inner in typing.get_args(hint):
            yield from choices_in(inner)


def lines_of_plans() -> Iterator[str]:
    for kind in fingerprint._STORED:
        hints, names = typing.get_type_hints(kind), fingerprint.stored_names(kind)
        for stored, attribute in names.fields:
            if words := list(choices_in(hints[attribute])):
                yield f"plan: {names.name}.{stored}: {' '.join(words)}"


class _Asked(dict[str, int]):
    """Remembers for which keys it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.keys_asked: list[str] = []

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_asked.append(key)
        return default


def lines_of_accounts() -> Iterator[str]:
    counts = _Asked()
    InputAccount.of("a", counts, retained=0)
    yield f"manifests, queries.*.account.*: {' '.join(sorted(counts.keys_asked))}"


def lines_of_names() -> Iterator[str]:
    """Names of files, of columns in them, and of what a manifest remembers for Spark."""
    found_by = RunKey("label", ("k",))
    sums = partials_of([AggregateCall("n", "sum", ("v",), (pa.int64(),))])
    assert sums is not None
    files = {
        "manifest": manifest.manifest_name(7),
        "owner": manifest.OWNED,
        "begun": manifest.BEGUN,
        "history": HistorySegment(0, 1, 2, 3, "run").name,
        "shed": load_shedding.node_decision_name(7, 1, 2),
        "shed of job": load_shedding.job_decision_name(7, None),
        "shed of source": load_shedding.job_decision_name(7, 3),
        "snapshots": SNAPSHOTS,
        "parts of sinks": recorded_parts(7, "digest"),
        "answers": async_lookup.FOLDER,
        "folders": " ".join(manifest.FOLDERS),
        "table": postgres_store.CREATE_TABLES[0],
    }
    columns = {
        "runs": (SLOT, ARRIVAL, CAME, DELETED, order_of_times("t"), least_times("t"), null_column("t")),
        "keys of runs": (found_by.prefixes, found_by.places),
        "partial aggregates": tuple(column.name for column in sums.make),
        "sides": (copy_name("a", 1), node_alias(1)),
        "indexes": tuple(Measured("c", Measure(*kind)).name for kind in MEASURES),
    }
    host_keys = (
        spark_positions.QUERY_ID,
        spark_positions.BATCH,
        spark_positions.OFFSETS,
        spark_positions.SOURCES,
        spark_positions.TOPICS,
        READ,
        COLUMNS,
        CHANGED,
    )
    yield from (f"names, files: {what}: {name}" for what, name in files.items())
    yield from (f"names, columns: {what}: {' '.join(names)}" for what, names in columns.items())
    yield f"names, host: {' '.join((*host_keys, file_lists.KEY, last_output.KEY))}"


def test_stored_keys_are_as_they_were():
    now = [*lines_of_files(), *lines_of_plans(), *lines_of_accounts(), *lines_of_names()]
    assert len(now) == len(set(now))
    stored = STORED.read_text().splitlines() if STORED.exists() else []
    assert [line for line in stored if line not in now] == [], HINT
    if os.environ.get("WATERSMEET_GOLDEN") == "write":
        STORED.write_text("\n".join(now) + "\n")
        stored = now
    assert [line for line in now if line not in stored] == [], "a new key: WATERSMEET_GOLDEN=write adds it"


@pytest.mark.parametrize("file", FILES)
def test_what_is_written_is_what_is_read(file):
    read, written = (schema_of(FILES[file], mode) for mode in ("validation", "serialization"))
    assert list(keys_in(read, read)) == list(keys_in(written, written))


def test_every_record_is_a_file_or_part_of_one():
    """One that is stored and not listed in FILES could be renamed unseen."""
    reached = set[str]()
    for kind in (*FILES.values(), *OF_A_TICK):
        reached |= {kind.__name__, *schema_of(kind, "serialization").get("$defs", {})}
    defined = {
        name
        for path in find_paths(PACKAGE, "**/*.py")
        for name in re.findall(r"^class (\w+)\((?:Frozen)?Record\):", path.read_text(), re.MULTILINE)
    }
    assert defined - {"FrozenRecord"} == {name for name in reached if name in defined}, "list it in FILES"


def test_a_field_keeps_its_stored_name():
    class Renamed(StoredRecord):
        now: float = Field(validation_alias="then", serialization_alias="then")

    text = Renamed(now=float("-inf")).model_dump_json()
    assert text == '{"then":"-Infinity"}'
    assert Renamed.model_validate_json(text) == Renamed(now=float("-inf"))
    assert Renamed(now=1.0).model_dump() == {"then": 1.0}
    whole = schema_of(Renamed, "serialization")
    assert dict(keys_in(whole, whole)) == {"": "object", "then": "number"}
