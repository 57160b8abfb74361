"""Turn exceptions of Spark, py4j and Python workers into readable errors; carry ours to the driver."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from watersmeet.errors import EngineError, WatersmeetError, error_from, place_error, plain_of, printable
from watersmeet.runtime.spark.checkpoint.spark_log import REBUILD

# WatersmeetErrors on their way from a task to the driver, which Spark hands on as text alone.
#
# An error travels as JSON (its class by name, message, code, hint, place), never as code, and with a
# seal: a keyed digest of that JSON. Exceptions quote values of rows, and a value may be any text, a
# complete error of ours included. So the driver takes an error only with a seal of its own key, which is
# drawn at random per process, goes to tasks in their functions, and is never written down. Text with a
# wrong seal is text.

_MARK = "watersmeet-error:"
_SEALED = re.compile(_MARK + r"([A-Za-z0-9+/=]+):([0-9a-f]{64}):")

_KEY = secrets.token_bytes(32)
"""Of this process. A worker has one of its own, of no use: it is told the driver's."""

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class TaskFailed(Exception):
    """A WatersmeetError on its way out of a Python worker."""


@dataclass(frozen=True)
class ErrorSealingTask:
    """A function for `mapInArrow`: that of a task, with its WatersmeetErrors sealed. Made on the driver."""

    task: Batches
    key: bytes = field(default=_KEY, repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.task(batches)
        except WatersmeetError as error:
            raise seal_error(error, self.key) from None


def seal_error(error: WatersmeetError, key: bytes = _KEY) -> TaskFailed:
    """Return an exception whose text contains ``error``, signed."""
    packed = base64.b64encode(json.dumps(plain_of(error)).encode()).decode()
    return TaskFailed(f"{_MARK}{packed}:{_compute_seal(packed, key)}: {error}")


def unseal_error(text: str) -> WatersmeetError | None:
    """Return the first error in ``text`` that a task of this process signed, or None."""
    for packed, seal in _SEALED.findall(text):
        if hmac.compare_digest(_compute_seal(packed, _KEY), seal):
            fields: Any = json.loads(base64.b64decode(packed))
            return error_from(fields)
    return None


def _compute_seal(packed: str, key: bytes) -> str:
    return hmac.new(key, packed.encode(), hashlib.sha256).hexdigest()


# Exceptions of Spark, py4j and Python workers → one readable `WatersmeetError`; no stack traces for
# users.
#
# A WatersmeetError raised inside a task arrives as itself (`unseal_error`). All else is looked for in text,
# which may quote values of rows: what stands behind the first error condition in it is such a value for
# all we know.

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\][ \t]*")
_ADVICE = re.compile(
    r' If necessary set "[\w.]+" to "\w+" to bypass this error(?:, and return NULL instead)?\.'
)
"""Of Spark, to set what rows rest on."""
_EXCEPTION = re.compile(r"^(?:[\w.$]+\.)?(\w*(?:Exception|Error))(?::\s*(.*))?$", re.DOTALL)
_HEADER = re.compile(
    r"(?:CSV header does not conform to the schema"
    r"|Number of column in CSV header is not equal to number of fields in the schema)"
    r"\W*\n(?P<what>.*?)\n\s*CSV file: (?P<file>\S+)",
    re.DOTALL,
)
_FRAGMENT = re.compile(r"^== SQL [^\n]*==\n([^\n]*)\n( *\^+)", re.MULTILINE)
_PARQUET = re.compile(
    r"(?:reading file (?P<file>.+?)\. )?Data type mismatches when reading Parquet column"
    r" \[(?P<column>[^\]]*)\]\. Expected Spark type (?P<declared>.+?), actual Parquet type (?P<has>.+?)\. "
)
_COLON = re.compile(r"Relative path in absolute URI: (?P<name>[^\n]+)")
_DISK = re.compile(
    r"(?P<path>/[^\n]*?)(?:: No space left on device| \((?P<why>No space left on device|Disk quota exceeded"
    r"|Read-only file system)\))"
)
_WRITTEN_TO = re.compile(
    r"Task failed while writing rows to (?:file:)?(?P<path>/[^\n]*?)(?:/_attempts\b|\. |\n|$)"
)
_READING = re.compile(r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (?P<file>[^\n]+?)\.\s")
_MAX_CHARACTERS = 20_000
"""Of one exception's text are read for words: values of rows in it may be long."""
_LONGEST_MESSAGE = 600
_MISSING = re.compile(
    r"^ModuleNotFoundError: No module named '(pyarrow|numpy|pandas|watersmeet)'", re.MULTILINE
)
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), (?P<in>in \S+)')
_LOCATION_SUFFIX = re.compile(r" \(.+, line \d+, in \S+\)$")
_OURS = re.compile(r"[/\\](?:pyspark|py4j|watersmeet)[/\\]")
"""Files whose frames say nothing to a user."""
_LONGEST_PYTHON = 400
"""Characters of what a Python exception says, before its place."""
_WRAPPERS = ("FOREACH_BATCH_USER_FUNCTION_ERROR", "STREAM_FAILED", "TASK_WRITE_FAILED", "FAILED_READ_FILE")

_ADVICE_BY_WORDS = (
    (
        ".py, line ",
        "correct the function, or the rows that it fails for, and run again: the tick is repeated",
    ),
    ("does not exist", "create it, or correct its name in the job"),
    ("TABLE_OR_VIEW_NOT_FOUND", "create it, or correct its name in the job"),
    ("password authentication failed", "correct the options 'user' and 'password'"),
    ("No suitable driver", "add the jar of the JDBC driver: --jars DIR"),
)
"""Words of an error that has no code of its own, and what to do; a function's own words come first."""

# (text in Spark's message, code, what is wrong, hint)
_KNOWN_ERRORS: tuple[tuple[str, str, str, str | None], ...] = (
    (
        "Some data may have been lost",
        "offsets-expired",
        "Kafka no longer has offsets that the job still has to read",
        "run again: the next error names the number of lost rows and what to do; nothing of this tick"
        " was written, and the state is intact",
    ),
    (
        "Incomplete log file",
        "spark-checkpoint-damaged",
        "a file of Spark's checkpoint is incomplete; the state is intact",
        REBUILD,
    ),
    (
        "Malformed log file",
        "spark-checkpoint-damaged",
        "a file of Spark's checkpoint is incomplete; the state is intact",
        REBUILD,
    ),
    ("UnknownTopicOrPartition", "topic-missing", "a Kafka topic or partition no longer exists", None),
    (
        "org.apache.kafka.common.errors.TimeoutException",
        "kafka-unreachable",
        "a Kafka broker does not answer",
        "run again when it answers; nothing of this tick was written, and the state is intact",
    ),
    (
        "java.lang.OutOfMemoryError",
        "out-of-memory",
        "Spark ran out of memory",
        ("give Spark more memory, at least 16 times the largest record (--conf spark.driver.memory=4g),"
        " or read fewer rows per tick"),
    ),
    (
        "Python worker exited unexpectedly",
        "worker-gone",
        "a Python worker process of Spark ended unexpectedly",
        "run again, which repeats the tick. If the system killed it for its memory, read fewer rows per"
        " tick; check that no function of yours ends its process",
    ),
    (
        "watersmeet.runtime.spark.tick.daemon's stdout",
        "other-python",
        "Spark's Python workers cannot load watersmeet: on their machines the package or one of its"
        " libraries is missing, or Python has another version",
        "install watersmeet there for the Python of spark.pyspark.python, or ship an archive with the"
        " job (docs/users/deployment.md)",
    ),
    (
        "Failed to find data source: kafka",
        "kafka-connector-missing",
        "Spark's Kafka connector is not loaded",
        "add its jars: --jars DIR, SET jars = 'DIR', or the environment variable WATERSMEET_SPARK_JARS",
    ),
)  # fmt: skip


def readable_error(error: BaseException, during: str | None = None) -> WatersmeetError:
    """Convert any exception to the error that the user sees.

    Args:
        during: the action that failed.
    """
    if isinstance(error, WatersmeetError):
        return error
    place = place_error(error, during)
    if place is not None:
        return place
    texts = _list_cause_texts(error)
    own_error = unseal_error("\n".join(texts))
    if own_error is not None:
        return own_error
    where = f"{during}: " if during else ""
    if _is_java_lost(error):
        return EngineError(
            f"{where}Spark's Java process has ended",
            code="spark-gone",
            hint="run again: the job resumes after its last tick. If the system killed it for its"
            " memory, use --conf spark.driver.memory=2g (16 times the largest record) or read"
            " fewer rows per tick",
        )
    for text in texts:
        stock_error = _explain_known_error(text[:_MAX_CHARACTERS], where)
        if stock_error is not None:
            return stock_error
    file = next(filter(None, map(_find_read_file, texts)), None)
    if file is not None:
        return EngineError(
            f"{where}{file} cannot be read: {innermost_message(error)}",
            code="file-unreadable",
            hint="replace it with the complete file and run again; nothing of this tick was written",
        )
    said = innermost_message(error)
    hint = next((advice for words, advice in _ADVICE_BY_WORDS if words in said), None)
    return EngineError(f"{where}{said}", code="spark-failed", hint=hint)


def colon_in_name_error(what: str) -> EngineError:
    """Return the refusal of a file that Spark cannot name where it lists files by a pattern."""
    return EngineError(
        f"{what}: Spark cannot match a file name that contains a colon with a pattern in 'path'",
        code="file-name",
        hint="rename the file, or set 'path' to the directory itself",
    )


@contextmanager
def explain_java_end() -> Iterator[None]:
    """Convert errors in the block that only report the end of Spark's JVM to WatersmeetError."""
    try:
        yield
    except Exception as error:
        if isinstance(error, WatersmeetError) or not _is_java_lost(error):
            raise
        raise readable_error(error) from None


def _find_read_file(text: str) -> str | None:
    """Return the file that Spark was reading, if the text of one exception names it; else None."""
    text = text[:_MAX_CHARACTERS]
    reading = _READING.search(text)
    return reading["file"] if reading is not None and reading.start() <= _end_of_signs(text) else None


def _explain_known_error(text: str, where: str) -> EngineError | None:
    """Return the known meaning of one exception's text, or None.

    Markers count only where Spark writes them, not inside values.
    """
    end = _end_of_signs(text)
    header = _HEADER.search(text)
    if header is not None and header.start() <= end:
        what = "; ".join(line.strip() for line in header["what"].splitlines())
        return EngineError(
            f"{where}the header of {header['file']} differs from the declared columns ({what})",
            code="wrong-columns",
            hint="give all files of a source the same header, or set 'enforceSchema' = 'true', which"
            " takes columns by position; if there were no files when the run started, run it again",
        )
    parquet = _PARQUET.search(text)
    if parquet is not None and parquet.start() <= end:
        return EngineError(
            f"{where}column {parquet['column']} is declared {parquet['declared'].upper()}, but is"
            f" {parquet['has']} in {parquet['file'] or 'a Parquet file'}",
            code="column-type",
            hint="declare the type of the file and cast in a view, or write the file with the declared type",
        )
    colon = _COLON.search(text)
    if colon is not None and colon.start() <= end:
        return colon_in_name_error(f"{where}{printable(colon['name'])}")
    disk = _DISK.search(text)
    if disk is not None and disk.start() <= end and disk["why"] == "Read-only file system":
        return EngineError(
            f"{where}{disk['path']} cannot be written: its file system is read-only",
            code="disk-not-writable",
            hint="make it writable and run again, which repeats the tick",
        )
    if any(0 <= text.find(sign) <= end for sign in ("No space left on device", "Disk quota exceeded")):
        to = disk if disk is not None and disk.start() <= end else _WRITTEN_TO.search(text)
        place = (
            "where the job writes (sinks, checkpoint, spark.local.dir)" if to is None else f"at {to['path']}"
        )
        return EngineError(
            f"{where}the disk is full {place}",
            code="disk-full",
            hint="free some space and run again, which repeats the tick",
        )
    missing = _MISSING.search(text)
    if missing is not None and text[:end].rstrip().endswith("[PYTHON_EXCEPTION]"):
        return EngineError(
            f"{where}the Python of Spark's workers has no module {missing[1]}",
            code="other-python",
            hint="before Spark starts, set spark.pyspark.python or PYSPARK_PYTHON to a Python that has it",
        )
    for sign, code, message, hint in _KNOWN_ERRORS:
        if 0 <= text.find(sign) <= end:
            return EngineError(f"{where}{message}", code=code, hint=hint)
    return None


def _end_of_signs(text: str) -> int:
    """Return the position in ``text`` after which a marker no longer counts.

    This is the message of the first error condition: the text after it may be a value of a row.
    """
    condition = _condition(text)
    if condition is None:
        return len(text)
    return condition.start() if condition[1] == "USER_RAISED_EXCEPTION" else condition.end()


def _is_java_lost(error: BaseException) -> bool:
    """Return True if the JVM ended, so that py4j has no peer."""
    if isinstance(error, ConnectionError | EOFError):
        return True
    if not type(error).__module__.startswith("py4j") or hasattr(error, "java_exception"):
        return False
    return "Trace:" not in str(error)  # with one, Java has answered


def innermost_message(error: BaseException) -> str:
    """Return the message of the innermost cause in one line, without stack frames."""
    texts = _list_cause_texts(error)
    message = next(filter(None, map(_message, reversed(texts))), None)
    return message or (texts[0].strip().splitlines() or [type(error).__name__])[0].strip()[:_LONGEST_MESSAGE]


def _message(text: str) -> str | None:
    """Return the message of one exception's text.

    This is the text after its first error condition, or else its last message.
    """
    text = text[:_MAX_CHARACTERS]
    condition = _condition(text)
    message = [] if condition is None else text[condition.end() :].split("\n")[:1]
    in_python = condition is not None and 0 <= text.find(_TRACEBACK) < condition.start()
    if condition is None or in_python or message[0].rstrip().endswith(_TRACEBACK):
        message = [line for line in _messages(text) if not any(wrapper in line for wrapper in _WRAPPERS)][-1:]
    said = "".join(message)
    if _LOCATION_SUFFIX.search(said):
        return said
    said = said.split(" SQLSTATE: ")[0]
    return _ADVICE.sub("", _CONDITION.sub("", said, count=1)).strip()[:_LONGEST_MESSAGE] or None


def _condition(text: str) -> re.Match[str] | None:
    """Return the first error condition in ``text`` that does not wrap another exception."""
    return next((match for match in _CONDITION.finditer(text) if not match[1].startswith(_WRAPPERS)), None)


def find_condition(error: BaseException) -> str | None:
    """Return the name of Spark's innermost error condition, such as DIVIDE_BY_ZERO, or None."""
    matches = (_condition(text[:_MAX_CHARACTERS]) for text in reversed(_list_cause_texts(error)))
    return next((match[1] for match in matches if match is not None), None)


def find_sql_fragments(error: BaseException) -> list[str]:
    """List the SQL fragments that Spark marks with ``^^^``, innermost exception first."""
    fragments = [
        line[carets.index("^") : len(carets)]
        for text in reversed(_list_cause_texts(error))
        for line, carets in _FRAGMENT.findall(text[:_MAX_CHARACTERS])
    ]
    return list(dict.fromkeys(fragments))


def mentions_any(error: BaseException, signs: Iterable[str]) -> bool:
    """Return True if the text of an exception or of one of its causes contains one of the signs."""
    texts = _list_cause_texts(error)
    return any(sign in text[:_MAX_CHARACTERS] for sign in signs for text in texts)


def _list_cause_texts(error: BaseException) -> list[str]:
    """List the texts of an exception and of its Python and Java causes, outermost first."""
    parts = [str(error)]
    cause = getattr(error, "_cause", None) or error.__cause__
    while cause is not None and len(parts) < 10:
        parts.append(str(cause))
        cause = getattr(cause, "_cause", None) or cause.__cause__
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is not None:
        try:
            while java is not None and len(parts) < 20:
                parts.append(str(java.toString()))
                java = java.getCause()
        except Exception:  # the JVM may be what died
            pass
    return parts


def _messages(text: str) -> Iterator[str]:
    """Yield the lines that state an error: the first lines of Java and Python exceptions.

    An exception from a user's Python function retains its type and gets the place that raised it.
    """
    in_python, place = False, ""
    for line in text.splitlines():
        stripped = line.removeprefix("Caused by: ").strip()
        frame = _FRAME.match(stripped)
        if stripped.endswith(_TRACEBACK):
            in_python, place = True, ""
        elif in_python and frame is not None:
            place = (
                place
                if _OURS.search(frame["file"])
                else f" ({frame['file']}, line {frame['line']}, {frame['in']})"
            )
        elif in_python and stripped and not line[0].isspace():
            in_python = False
            yield f"{stripped[:_LONGEST_PYTHON]}{place}"
        elif stripped.startswith(("at ", "File ", "Traceback", "...", "^", "~", "=== ")):
            continue
        elif (match := _EXCEPTION.match(stripped)) and match.group(2):
            yield match.group(2)
        elif _CONDITION.match(stripped):
            yield stripped
