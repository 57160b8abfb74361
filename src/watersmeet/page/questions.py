"""Questions about rows of a job, each answered in a process of its own, as by `watersmeet why`.

Sources are read again for it, which may take long: so it is not done where the job runs, or the page is
served. The process gives way to the job, is given so many seconds and so much memory, and ends when nobody
waits for its answer any more. There is one at a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from watersmeet.errors import format_count

MAX_SECONDS = 60
MAX_MEMORY_BYTES = 2 << 30
"""So long a question may take, and so much memory."""
MAX_QUESTION_CHARACTERS = 2_000
"""A question has no more characters than this."""
WAIT_S = 3.0
"""So long one waits until the one before it, which its asker may have left, has ended."""
CHILD = ("-P", "-m", "watersmeet.cli.why.page_answers")

Told = dict[str, Any]


@dataclass(frozen=True)
class JobReference:
    """Job that questions are about.

    Attributes:
        text: text of the job; None: unknown.
        named: its file, as its user calls it.
        checkpoint: the directory of its state, as its user calls it.
        overrides: settings that take precedence over those of the text.
    """

    text: str | None
    named: str
    checkpoint: str
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def document(self) -> Told:
        """Description of the job for the page.

        It has the command without the question, and the command of a page that does answer questions for
        when the text is unknown.
        """
        named = self.named if self.text is not None and self.named != "-" else "JOB.sql"
        place = [named, "--checkpoint", self.checkpoint]
        return {
            "command": shlex.join(["watersmeet", "why", *place]),
            "answers": self.text is not None,
            "page": shlex.join(["watersmeet", "ui", *place]),
            "max_characters": MAX_QUESTION_CHARACTERS,
        }


class AnswerError(Exception):
    """There is no answer. ``status``: of HTTP; ``words``: why, and what to do."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class QuestionRunner:
    """Asks about a job. ``command``: of the process, behind Python's own name."""

    def __init__(
        self,
        job: JobReference,
        *,
        most_s: float = MAX_SECONDS,
        most_bytes: int = MAX_MEMORY_BYTES,
        wait_s: float = WAIT_S,
        command: Sequence[str] = CHILD,
    ) -> None:
        self.job = job
        self._most_s, self._most_bytes, self._wait_s = most_s, most_bytes, wait_s
        self._command = command
        self._turn = asyncio.Lock()

    async def told(
        self, question: Mapping[str, Any] | None, gone: Callable[[], Coroutine[Any, Any, None]]
    ) -> Told:
        """Return the answers to a question as JSON values.

        Args:
            question: the fields of `why.question.Question`; None: list the inputs.
            gone: creates a coroutine that ends when the client disconnects.

        Raises:
            AnswerError: the question has no answer, with the reason.
        """
        if self.job.text is None:
            raise AnswerError(409, f"the text of the job is not known here: {self.job.document['page']}")
        if question is not None and sum(map(len, _texts(question))) > MAX_QUESTION_CHARACTERS:
            raise AnswerError(413, f"the question has more than {MAX_QUESTION_CHARACTERS:,} characters")
        asked = {
            "question": None if question is None else dict(question),
            "text": self.job.text,
            "named": self.job.named,
            "checkpoint": self.job.checkpoint,
            "overrides": dict(self.job.overrides),
            "most_s": self._most_s,
            "most_bytes": self._most_bytes,
        }
        try:
            await asyncio.wait_for(self._turn.acquire(), self._wait_s)
        except TimeoutError:
            raise AnswerError(
                429, "another question is being answered; there is one at a time: ask again"
            ) from None
        try:
            return await self._of_a_process(json.dumps(asked).encode(), gone)
        finally:
            self._turn.release()

    async def _of_a_process(self, asked: bytes, gone: Callable[[], Coroutine[Any, Any, None]]) -> Told:
        try:
            process = _started(self._command)
        except OSError as error:
            raise AnswerError(503, f"no process can be started for it: {error.strerror}") from None
        made = asyncio.get_running_loop().run_in_executor(None, process.communicate, asked)
        left = asyncio.create_task(gone())
        try:
            waited: set[asyncio.Future[Any]] = {made, left}
            await asyncio.wait(waited, timeout=self._most_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_made = made.done()
            left.cancel()
            _end(process)
        out, _ = await made
        if not is_made:
            if left.done() and not left.cancelled():
                raise AnswerError(499, "nobody waits for the answer")
            seconds = format_count(int(self._most_s), "second")
            raise AnswerError(504, f"it took more than {seconds}, and was stopped: the command has no limit")
        return _read(out, process.returncode, self._most_bytes)


def _texts(question: Mapping[str, Any]) -> list[str]:
    every = (question.get(name) for name in ("input", "query", "time"))
    return [*(text for text in every if text), *question.get("keys", ())]


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a Python process in a session of its own, so that Ctrl-C does not reach it.

    The process imports the package from the same place as this process.
    """
    here = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _read(out: bytes, status: int, most_bytes: int) -> Told:
    try:
        told: Told = json.loads(out)
    except ValueError:
        raise AnswerError(
            500, f"the process that looked for it ended without an answer (status {status}): try the command"
        ) from None
    if told.get("no_memory"):
        size = f"{most_bytes / (1 << 30):.3g} GB"
        raise AnswerError(
            507, f"it takes more than {size} of memory, and was stopped: the command has no limit"
        )
    return told
