"""Parse the flags of ``whatif``, and report all errors together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import product
from typing import TypeVar

from watersmeet.errors import SpecError, WatersmeetError, collect_errors, near_names, raise_all
from watersmeet.spec.model import Source
from watersmeet.types.intervals import IntervalError, text_us
from watersmeet.whatif.files import FileRequest
from watersmeet.whatif.lags import EventStream
from watersmeet.whatif.settings import Setting

MAX_SETTINGS = 500
SHARES = (0.1, 0.01, 0.001, 0.0)
"""Of late rows: for each a lag is tried if none are said."""
PLOTS = (".png", ".svg", ".pdf")
MAX_LAG = 2**62

Read = TypeVar("Read")


@dataclass(frozen=True)
class WhatifFlags:
    """The flags as they were written."""

    sample: Sequence[str] = ()
    arrival: Sequence[str] = ()
    partition: Sequence[str] = ()
    lag: Sequence[str] = ()
    interval: Sequence[str] = ()
    idle: Sequence[str] = ()
    late_share: str | None = None
    rows_per_tick: int | None = None
    tick: str | None = None
    plot: str | None = None


@dataclass(frozen=True)
class Idle:
    """An idle timeout to try, in µs; None: none."""

    us: int | None


@dataclass(frozen=True)
class TickLength:
    """On the clock of arrival: µs, or if not ``in_time`` plain units."""

    length: int
    in_time: bool


@dataclass(frozen=True)
class Request:
    """Everything that one call of ``whatif`` requests.

    Attributes:
        lags: lags in the order of the flags, per source to which each applies. Empty: lags are derived
            from the sample's disorder.
        scales: factors by which intervals are scaled. Empty: the job's own intervals are used.
        idles: idle timeouts to try. Empty: the job's own timeouts are used.
        share: share of late rows for which a lag is requested.
    """

    asked: Sequence[FileRequest]
    lags: Sequence[Mapping[str, int]]
    scales: Sequence[Fraction]
    idles: Sequence[Idle]
    share: float | None
    rows_per_tick: int | None
    tick: TickLength | None
    plot: str | None

    def settings(self, by_disorder: Mapping[str, Mapping[str, int]]) -> list[Setting]:
        """Return all combinations of the requested settings.

        Args:
            by_disorder: Lags by title, which are tried if the request has no lags.

        Raises:
            SpecError: There are too many combinations.
        """
        titled: list[tuple[str, dict[str, int]]] = [("", {})] + [("", dict(lags)) for lags in self.lags]
        if not self.lags:
            titled += [(title, dict(lags)) for title, lags in by_disorder.items()]
        idles: Sequence[Idle | None] = self.idles or (None,)
        settings = [
            Setting(
                lags=lags,
                scale=scale,
                idle=None if idle is None else idle.us,
                keeps_idle=idle is None,
                title=title or ("" if lags else "as it is"),
            )
            for (title, lags), scale, idle in product(titled, self.scales or (Fraction(1),), idles)
        ]
        if len(settings) > MAX_SETTINGS:
            raise SpecError(
                f"every lag with every interval and idle timeout makes {len(settings)} settings,"
                f" and {MAX_SETTINGS} is the limit",
                code="too-many-settings",
                hint="give fewer values of --lag, --interval or --idle",
            )
        return settings


def read(words: WhatifFlags, streams: Mapping[str, EventStream]) -> Request:
    """Parse the flags into a request.

    Raises:
        SpecError: a flag is wrong.
        SeveralErrors: several flags are wrong; it contains all errors.
    """
    problems: list[WatersmeetError] = []

    def read_all(texts: Sequence[str], read_one: Callable[[str], Read]) -> list[Read]:
        read_values: list[Read] = []
        for text in texts:
            with collect_errors(problems):
                read_values.append(read_one(text))
        return read_values

    samples = _values_by_source(words.sample, "--sample", "orders='orders/*.parquet'", streams, problems)
    if missing := [name for name in streams if name not in samples]:
        problems.append(_no_sample(missing))
    arrivals = _values_by_source(words.arrival, "--arrival", "orders=ingested_at", streams, problems)
    partitions = _values_by_source(words.partition, "--partition", "orders=part", streams, problems)
    problems += _repeated_columns(arrivals, "--arrival") + _repeated_columns(partitions, "--partition")
    asked = []
    for name, stream in streams.items():
        if name not in samples:
            continue
        problems += _wrong_with_partitions(stream.source, name in partitions)
        arrival = arrivals.get(name, [None])[0]
        if arrival is None and not stream.times:
            problems.append(
                SpecError(
                    f'the arrival times of rows of "{name}" are not known, because its event time is'
                    " computed",
                    code="no-arrival",
                    hint=f"pass a column that has them: --arrival {name}=ingested_at",
                )
            )
            continue
        asked.append(
            FileRequest(
                stream.source,
                samples[name],
                stream.needed,
                stream.times[0] if stream.times else "",
                arrival,
                partitions.get(name, [None])[0],
            )
        )
    lags = read_all(words.lag, lambda text: _lags(text, streams))
    scales, idles = read_all(words.interval, _scale), read_all(words.idle, _idle)
    shares = read_all([] if words.late_share is None else [words.late_share], _share)
    if words.rows_per_tick is not None and words.tick is not None:
        problems.append(_wrong("--tick and --rows-per-tick both say what a tick is", "give one of them"))
    lengths = read_all([] if words.tick is None else [words.tick], _tick)
    if words.plot is not None:
        problems += _wrong_with_plot(words.plot)
    raise_all(problems)
    share, length = next(iter(shares), None), next(iter(lengths), None)
    return Request(asked, lags, scales, idles, share, words.rows_per_tick, length, words.plot)


def _tick(text: str) -> TickLength:
    in_time = not text.strip().isdigit()
    return TickLength(_length(text, "--tick", in_time=in_time, least=1), in_time)


def _wrong(message: str, hint: str) -> SpecError:
    return SpecError(message, code="wrong-option", hint=hint)


def _no_sample(names: Sequence[str]) -> SpecError:
    quoted = " and ".join(f'"{name}"' for name in names)
    flags = " ".join(f"--sample {name}='{name}/*.parquet'" for name in names)
    return SpecError(
        f"no sample exists for {quoted}",
        code="no-sample",
        hint=f"{flags} names files: Parquet, CSV with a header, or one JSON object per line",
    )


def _wrong_with_partitions(source: Source, told: bool) -> Iterator[WatersmeetError]:
    if told and source.is_one_partition:
        yield _wrong(
            f'--partition: rows of "{source.name}" come in one partition, as those of any {source.connector}'
            " source",
            "leave it out",
        )
    if source.partitions and not told:
        yield SpecError(
            f'"{source.name}" declares partitions ({", ".join(source.partitions)}), but the partitions'
            " of the sample's rows are not known, so its watermark would wait for all",
            code="no-partition",
            hint=f"pass a column that has it: --partition {source.name}=part",
        )


def _values_by_source(
    texts: Sequence[str],
    option: str,
    example: str,
    streams: Mapping[str, EventStream],
    problems: list[WatersmeetError],
) -> dict[str, list[str]]:
    """Parse ``source=value`` texts into the values of each source."""
    values: dict[str, list[str]] = {}
    by_lower_name = {name.lower(): name for name in streams}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value:
            problems.append(
                _wrong(f'"{option} {text}" is not of the form source=value', f"{option} {example}")
            )
        elif name.lower() not in by_lower_name:
            problems.append(_unknown(name, option, streams))
        else:
            values.setdefault(by_lower_name[name.lower()], []).append(value)
    return values


def _unknown(name: str, option: str, streams: Mapping[str, EventStream]) -> SpecError:
    return SpecError(
        f'{option}: there is no stream "{name}" in the queries of this job',
        code="unknown-source",
        hint=near_names(name, streams),
    )


def _repeated_columns(named: Mapping[str, Sequence[str]], option: str) -> list[WatersmeetError]:
    return [
        _wrong(f'{option} names {len(values)} columns of "{name}"', "name one")
        for name, values in named.items()
        if len(values) > 1
    ]


def _lags(text: str, streams: Mapping[str, EventStream]) -> dict[str, int]:
    """Parse the lags of the streams, in the format of ``--lag``.

    ``10 seconds`` applies to every stream that has a lag; ``orders=10 seconds, deliveries=1 minute``
    applies to the named streams.
    """
    if "=" not in text:
        return {name: _lag(text, stream) for name, stream in streams.items() if stream.lag is not None}
    problems: list[WatersmeetError] = []
    named = _values_by_source(text.split(","), "--lag", "'orders=10 seconds'", streams, problems)
    problems += [
        _wrong(f'"--lag {text}" says {len(values)} lags of "{name}"', "each --lag is one setting: repeat it")
        for name, values in named.items()
        if len(values) > 1
    ]
    lags = {}
    for name, (value, *_) in named.items():
        with collect_errors(problems):
            lags[name] = _lag(value, streams[name])
    raise_all(problems)
    return lags


def _lag(text: str, stream: EventStream) -> int:
    if stream.lag is None or len(stream.units) > 1:
        why = "its watermarks are told" if stream.lag is None else "its event times are of different units"
        raise _wrong(f'no lag of "{stream.source.name}" can be tried: {why}', "leave it out of --lag")
    return _length(text, f'the lag of "{stream.source.name}"', in_time=stream.in_time, least=0)


def _length(text: str, what: str, *, in_time: bool, least: int) -> int:
    """Parse a length: a time in µs, or a plain number."""
    own = text.strip()
    if not in_time:
        if not own.removeprefix("-").isdigit():
            raise _wrong(f"{what} is {text!r}, and its times are numbers", "give a whole number")
        length = int(own)
    else:
        try:
            length = text_us(own)
        except IntervalError as error:
            raise _wrong(f"{what} is {error.about(text)}", error.hint or "such as '10 seconds'") from None
    if not least <= length <= MAX_LAG:
        limit = "less than nothing" if length < 0 else "out of range"
        raise _wrong(f"{what} is {text!r}, which is {limit}", f"from {least} to {MAX_LAG}")
    return length


def _scale(text: str) -> Fraction:
    try:
        factor = Fraction(Decimal(text.strip()))
    except (InvalidOperation, ValueError, OverflowError):
        factor = Fraction(-1)
    if not Fraction(1, 1_000_000) <= factor <= 1_000_000:
        raise _wrong(
            f"--interval {text!r} is not a factor", "distances of times are multiplied by it: 0.5 halves them"
        )
    return factor


def _idle(text: str) -> Idle:
    if text.strip().lower() == "none":
        return Idle(None)
    return Idle(_length(text, "--idle", in_time=True, least=1))


def _share(text: str) -> float:
    """Parse a share of rows.

    >>> _share("0.1%"), _share("0.25")
    (0.001, 0.25)
    """
    own = text.strip()
    try:
        share = float(Decimal(own.removesuffix("%").strip()) / (100 if own.endswith("%") else 1))
    except (InvalidOperation, ValueError):
        share = -1.0
    if not 0 <= share < 1:
        raise _wrong(f"--late-share {text!r} is not a share of rows", "such as 0.1%, or 0.001; 0 for none")
    return share


def _wrong_with_plot(path: str) -> Iterator[WatersmeetError]:
    ending = os.path.splitext(path)[1].lower()
    if ending not in PLOTS:
        yield _wrong(f"--plot {path}: no picture is known by that name", f"it ends in {', '.join(PLOTS)}")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        yield SpecError(f"--plot {path}: there is no directory {folder}", code="path-missing")
    elif os.path.isdir(path):
        yield SpecError(f"--plot {path} is a directory", code="wrong-option")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        yield SpecError(
            "--plot needs matplotlib, which is not installed",
            code="missing-library",
            hint="pip install 'watersmeet[plot]', or use --csv for the same numbers",
        )
