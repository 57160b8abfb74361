"""Runs an example's job, in this process or on Spark, and compares what comes out with the independent
answer.

Jobs name the folder of their data by `PLACE`; another one takes its place in the text. In this process
nothing is read from there: rows are pushed.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from examples.arrivals import Tick, write_files

HERE = Path(__file__).parent
PLACE = ".examples/"
"""Where jobs look for their data and put their results."""

Rows = Counter[tuple[Any, ...]]
Answer = Callable[[Sequence[Tick]], Mapping[str, Rows]]
"""What every INSERT of a job comes to, by its sink, of what arrives in these ticks."""


@dataclass(frozen=True)
class Example:
    """``name``: its folder, here, and its page in ``docs/users/examples``. ``given``: makes about so many
    rows, which arrive in so many ticks, by a seed. ``answers``: by the files of its jobs."""

    name: str
    given: Callable[[int, int, int], Sequence[Tick]]
    answers: Mapping[str, Answer]


@dataclass(frozen=True)
class Outcome:
    """``results``: by sink the sums of what was put out; ``rows_in``: how many rows came, those of each
    source once; ``seconds``: of the ticks, without what was before them."""

    results: Mapping[str, Rows]
    rows_in: int
    seconds: float

    @property
    def speed(self) -> str:
        return f"{self.rows_in:,} rows in {self.seconds:.1f} s, {self.rows_in / self.seconds:,.0f} rows/s"


def text_of(example: str, job: str, folder: Path | None = None) -> str:
    """The job's text, over the data in ``folder``."""
    text = (HERE / example / job).read_text()
    return text if folder is None else text.replace(PLACE, f"{folder}/")


def plan_of(example: str, job: str) -> Any:
    """The plan of a job: a text of SQL, a pipeline, or calls in a module."""
    import watersmeet
    from watersmeet.pipelines import Pipeline

    if job.endswith(".py"):
        relation = _relation_of(example, job)
        return watersmeet.job(relation().to_sink(watersmeet.memory(relation.__name__))).plan
    text = text_of(example, job)
    if job.endswith(".toml"):
        return Pipeline.from_toml(text).job().plan
    return watersmeet.plan_job(watersmeet.parse_job(text))


def _relation_of(example: str, job: str) -> Callable[..., Any]:
    """The one function of a module of calls: its parameters are the streams, by name."""
    module = import_module(f"examples.{example}.{Path(job).stem}")
    (function,) = (f for f in vars(module).values() if getattr(f, "__module__", "") == module.__name__)
    return function  # type: ignore[no-any-return]


def in_process(plan: Any, ticks: Sequence[Tick], **options: Any) -> Outcome:
    """Run a plan, a text or a `JoinSpec` in this process, tick by tick, and end its input.

    Args:
        options: as for `watersmeet.local.job`.
    """
    from watersmeet import local

    job = local.job(plan, **options)
    sources = job.plan.sources
    tables: dict[str, list[pa.Table]] = {}
    before = time.perf_counter()
    for tick in ticks:
        for source in sources:
            for rows, diff in _changes(source, tick[source.name]):
                job.push(source.name, rows, diff=diff)
        for name, table in job.tick().tables.items():
            tables.setdefault(name, []).append(table)
    for name, table in job.tick(end=True).tables.items():
        tables.setdefault(name, []).append(table)
    seconds = time.perf_counter() - before
    return Outcome({name: summed(out) for name, out in tables.items()}, _rows_in(sources, ticks), seconds)


def _changes(source: Any, rows: pa.Table) -> list[tuple[pa.Table, int]]:
    """The declared columns of the rows that come, and of those that go."""
    diff = source.options.get("diff.column")
    declared = [column.name for column in source.columns if column.name != diff]
    if diff is None:
        return [(rows.select(declared), 1)] if rows.num_rows else []
    parts = [(rows.filter(pc.equal(rows[diff], sign)).select(declared), sign) for sign in (1, -1)]
    return [(part, sign) for part, sign in parts if part.num_rows]


def _rows_in(sources: Iterable[Any], ticks: Sequence[Tick]) -> int:
    return sum(tick[source.name].num_rows for tick in ticks for source in sources)


def on_spark(
    example: Example,
    job: str,
    ticks: Sequence[Tick],
    folder: Path,
    text: str | None = None,
    **settings: str | int | bool,
) -> Outcome:
    """Run a job on Spark over files of these ticks in ``folder``, and end its input.

    Args:
        text: of SQL, in place of the file's.
        settings: as with SET.
    """
    import watersmeet
    from watersmeet.pipelines import Pipeline

    place = folder.resolve() / example.name
    shutil.rmtree(place, ignore_errors=True)
    write_files(ticks, place / "in")
    seconds = 0.0

    def on_tick(result: Any, took: float, parts: Mapping[str, float]) -> None:
        nonlocal seconds
        seconds += took

    plan = plan_of(example.name, job) if text is None else watersmeet.plan_job(watersmeet.parse_job(text))
    asked: dict[str, str | int | bool] = {"until_caught_up": True, "finish": True} | settings
    asked.setdefault("checkpoint", str(place / "state"))
    if job.endswith(".py"):
        seconds = _frames_joined(_relation_of(example.name, job), plan, place, settings)
    elif job.endswith(".toml"):
        Pipeline.from_toml(text_of(example.name, job, folder.resolve())).run(settings=asked, on_tick=on_tick)
    else:
        text = (text or text_of(example.name, job)).replace(PLACE, f"{folder.resolve()}/")
        watersmeet.run(text, asked, on_tick=on_tick)
    sinks = [path.name for path in (place / "out").iterdir()]
    results = {sink: summed(_written(place / "out" / sink)) for sink in sinks}
    return Outcome(results, _rows_in(plan.sources, ticks), seconds)


def _frames_joined(
    relation: Callable[..., Any], plan: Any, place: Path, settings: Mapping[str, str | int | bool]
) -> float:
    """Run calls over streaming DataFrames; the seconds of the ticks."""
    from pyspark.sql import SparkSession

    import watersmeet

    spark = SparkSession.builder.getOrCreate()
    frames = {}
    for source in plan.sources:
        first = next((place / "in" / source.name).glob("*.parquet"))
        schema = spark.read.parquet(str(first)).schema
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        frames[source.name] = stream.parquet(str(place / "in" / source.name))
    sink = watersmeet.files(str(place / "out" / relation.__name__))
    job = watersmeet.job(
        relation(**frames).to_sink(sink),
        checkpoint=str(place / "state"),
        settings={"until_caught_up": True, "finish": True} | dict(settings),
    )
    before = time.perf_counter()
    job.start().await_termination()
    return time.perf_counter() - before


def _written(folder: Path) -> list[pa.Table]:
    return [pq.ParquetFile(file).read() for file in sorted(folder.glob("*.parquet"))]


def summed(tables: Iterable[pa.Table]) -> Rows:
    """The rows of all tables; of changes what is there after the last one."""
    rows: Rows = Counter()
    for table in tables:
        names = [name for name in table.column_names if name not in ("_diff", "_tick")]
        diffs = table["_diff"].to_pylist() if "_diff" in table.column_names else [1] * table.num_rows
        for diff, *values in zip(diffs, *(table[name].to_pylist() for name in names), strict=True):
            rows[tuple(values)] += diff
    return Counter({row: count for row, count in rows.items() if count})


def differences(results: Mapping[str, Rows], wanted: Mapping[str, Rows]) -> list[str]:
    """What is not as it should be, a line for each sink."""
    wrong = []
    for sink, answer in wanted.items():
        found = results.get(sink, Counter())
        if found != answer:
            missing, surplus = answer - found, found - answer
            told = f"{missing.total():,} rows missing and {surplus.total():,} too many of {answer.total():,}"
            wrong.append(f"{sink}: {told}, such as {next(iter(missing or surplus))}")
    return wrong
