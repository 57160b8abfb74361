"""What is measured of the tests: probes leave code that has run, and nothing that ran later is missed."""

import json
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader

import pytest

from tests import probes
from tests.support.serving import REPOSITORY

MEASURED = """
from functools import cache, cached_property

class Both:
    @property
    def plain(self):
        return 1

    @cached_property
    def kept(self):
        return 2

@cache
def wrapped(number):
    return number + 1

def made():
    def inner(number):
        return number * 2
    return inner

def partly(number):
    if number > 90:
        return "late"
    for each in range(number):
        each += 1
    return "early"
"""

RUN = """
import json, sys
from slipcover import FileMatcher, ImportManager, Slipcover
from tests.probes import FadingProbes

folder, kind = sys.argv[1:]
sys.path.insert(0, folder)
probes = {"fading": FadingProbes, "plain": Slipcover}[kind](branch=True, source=[folder])
with ImportManager(probes, FileMatcher(sources=[folder])):
    import measured
if kind == "fading":
    probes.know_functions()
for number in range(200):
    both = measured.Both()
    assert (both.plain, both.kept, measured.wrapped(number), measured.made()(number)) == (
        1, 2, number + 1, 2 * number)
    measured.partly(number % 80)
    if kind == "fading":
        probes._next = 0.0
        probes.fade()
measured.partly(91)  # only now
of_probes = {
    "plain": measured.Both.plain.fget,
    "kept": measured.Both.__dict__["kept"].func,
    "wrapped": measured.wrapped.__wrapped__,
    "made": measured.made,
    "inner": measured.made(),
    "partly": measured.partly,
}
left = [name for name, function in of_probes.items() if "__slipcover__" in function.__code__.co_consts]
print(json.dumps([probes.get_coverage()["files"], left]))
"""


@pytest.mark.full
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="probes of another kind")
def test_code_that_has_run_loses_its_probes_and_the_rest_keeps_them(tmp_path):
    (tmp_path / "measured.py").write_text(MEASURED)
    told = {}
    for kind in ("fading", "plain"):
        words = [sys.executable, "-c", RUN, str(tmp_path), kind]
        done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told[kind] = json.loads(done.stdout)
    (files, left), (as_ever, _) = told["fading"], told["plain"]
    assert files == as_ever
    (measured,) = files.values()
    assert measured["missing_lines"] == measured["missing_branches"] == []
    assert left == ["partly"]


def test_cached_code_matches_its_source(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "KEPT", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    source = tmp_path / "module.py"

    def value_in(text):
        source.write_text(text)
        os.utime(source, (1, 1))  # of the same size and time
        own = {}
        exec(probes.KeptLoader(SourceFileLoader("module", str(source))).get_code("module"), own)
        return own["value"]

    assert [value_in(f"value = {number}") for number in (1, 1, 2)] == [1, 1, 2]
    (kept,) = (tmp_path / "kept").iterdir()
    kept.write_bytes(kept.read_bytes()[:-5])
    assert value_in("value = 2") == 2
