"""Which view of a run there is, by what standard output is and what is asked for."""

from __future__ import annotations

import io
import sys

import pytest

from tests.observe.watched import TEXT
from tests.support.screen import Screen
from watersmeet.cli.output import LogOutput
from watersmeet.cli.run import Appearance, _views
from watersmeet.observe.live.lines import JsonLines, PlainLines
from watersmeet.observe.live.view import LiveView
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job


@pytest.mark.parametrize(
    ("terminal", "term", "appearance", "log", "view"),
    [
        (True, "xterm", Appearance(), None, LiveView),
        (True, "dumb", Appearance(), None, PlainLines),
        (True, "xterm", Appearance(live=False), None, PlainLines),
        (True, "xterm", Appearance(json=True), None, JsonLines),
        (True, "xterm", Appearance(quiet=True), None, None),
        (True, "xterm", Appearance(), "text", None),
        (True, "xterm", Appearance(live=True), "text", LiveView),
        (False, "xterm", Appearance(), None, PlainLines),
        (False, "xterm", Appearance(live=True), None, LiveView),
    ],
)
def test_view(monkeypatch, terminal, term, appearance, log, view):
    monkeypatch.setattr(sys, "stdout", Screen(80, 24) if terminal else io.StringIO())
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("FORCE_COLOR", "1")  # is about colours, not about what draws in place
    job = parse_job(TEXT)
    views, _, _ = _views(appearance, "folder/job.sql", job, plan_job(job), LogOutput(log))
    assert [type(each) for each in views] == ([] if view is None else [view])
