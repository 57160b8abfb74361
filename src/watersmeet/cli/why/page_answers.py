"""A question of a job's page, answered in this process, which is there for it alone.

It comes as JSON by standard input, and the answer goes as JSON to standard output.

See `page.questions`, which starts it. What the answer quotes of rows is cut where it is very long.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from watersmeet.cli.state_commands.show import StateLocation
from watersmeet.cli.why.command import answer_question, plan_text
from watersmeet.errors import WatersmeetError, format_count, printable
from watersmeet.why.question import Question, inputs_of_job

MOST_CHARACTERS = 500
"""Of one text of an answer."""
_GRACE_S = 5


def answer_request(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer a request of the page.

    Returns:
        ``inputs`` or ``answers``; if there are none, the ``problem`` and a ``hint`` with the command's
        text; or ``no_memory``.
    """
    text, named, directory, overrides = (asked[n] for n in ("text", "named", "checkpoint", "overrides"))
    file = Path(named)
    try:
        if asked["question"] is None:
            place = StateLocation.from_text(text, file, directory, file, overrides)
            job, plan = plan_text(text, file, place, overrides)
            return {"inputs": _cut([asdict(own) for own in inputs_of_job(job, plan)])}
        question = Question(**asked["question"])
        return {
            "answers": [
                _cut(own.document())
                for own in answer_question(text, file, question, directory, file, overrides)
            ]
        }
    except WatersmeetError as error:
        hint = None if error.hint is None else _cut(error.hint)
        return {"problem": _cut(error.message), "hint": hint}
    except MemoryError:
        return {"no_memory": True}


def _cut(value: Any) -> Any:
    """Return the value with texts that a page can display.

    Texts are cut to `MOST_CHARACTERS`, and control characters are shown as escapes.
    """
    if isinstance(value, dict):
        return {_cut(name): _cut(own) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(own) for own in value]
    if isinstance(value, str):
        more = len(value) - MOST_CHARACTERS
        rest = f"… ({format_count(more, 'more character')})" if more > 0 else ""
        return printable(value[:MOST_CHARACTERS]) + rest
    return value


def _limit(most_s: float, most_bytes: int) -> None:
    """Lower this process's priority, and limit its memory and running time.

    It yields to the job, is killed first when the machine is short of memory, and ends by itself if the
    process that waits for it was killed.
    """
    os.nice(10)
    signal.alarm(int(most_s) + _GRACE_S)
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    with suppress(OSError):  # it may be no Linux
        Path("/proc/self/oom_score_adj").write_text("1000")


def main() -> None:
    """Read the question, and write the answer."""
    asked = json.load(sys.stdin)
    _limit(asked["most_s"], asked["most_bytes"])
    out, sys.stdout = sys.stdout, sys.stderr  # nothing else comes between
    json.dump(answer_request(asked), out, default=str)


if __name__ == "__main__":
    main()
