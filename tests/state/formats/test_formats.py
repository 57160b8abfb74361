"""States that earlier versions wrote, and one that a migration is planted for."""

from __future__ import annotations

import json

import pytest

from tests.state.formats.kept import (
    ALL_TICKS,
    FOLDER,
    JOB,
    KEPT_TICKS,
    build_archive_path,
    open_job,
    run,
    unpack_state,
)
from watersmeet.errors import StateError
from watersmeet.state import manifest as migrations
from watersmeet.state.checksums import add_checksum, verify_checksum
from watersmeet.state.manifest import STATE_VERSION, load_newest, manifest_name, migrate_manifest
from watersmeet.state.store import MemoryStore, section_of

VERSIONS = sorted(int(file.stem) for file in FOLDER.glob("*.zip"))


@pytest.fixture(scope="module")
def uninterrupted_output():
    """What the job puts out in the ticks after those whose state is kept."""
    return run(open_job(MemoryStore()), ALL_TICKS)[KEPT_TICKS:]


def test_every_state_format_has_an_archive():
    oldest = min(migrations.STEPS, default=STATE_VERSION)
    assert list(range(oldest, STATE_VERSION + 1)) == VERSIONS, "python -m tests.state.formats.kept"


@pytest.mark.parametrize("version", VERSIONS)
def test_job_resumes_from_every_archived_format(version, uninterrupted_output):
    store = MemoryStore()
    unpack_state(version, store)
    job = open_job(store)
    assert job.driver.tick == KEPT_TICKS
    assert run(job, ALL_TICKS) == uninterrupted_output
    assert any(any(tick.values()) for tick in uninterrupted_output)


OTHER_ORDERS = {
    "FROM a FULL JOIN b ON": "FROM b FULL JOIN a ON",
    "FROM a JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 20\n"
    "  JOIN c ON c.k = b.k AND c.t BETWEEN b.t - 5 AND b.t + 9": "FROM c, b, a WHERE a.k = b.k"
    " AND b.t BETWEEN a.t AND a.t + 20 AND c.k = b.k AND c.t BETWEEN b.t - 5 AND b.t + 9",
    "FROM x JOIN y ON x.k = y.g": "FROM y JOIN x ON y.g = x.k",
    "FROM x JOIN y ON x.g = y.g": "FROM y JOIN x ON y.g = x.g",
    "FROM x LEFT JOIN y ON": "FROM y RIGHT JOIN x ON",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_archived_state_resumes_with_another_join_order(version, uninterrupted_output):
    """Those of version 8 say nothing of how joins stood but what their sides are called."""
    store, job = MemoryStore(), JOB
    unpack_state(version, store)
    for before, after in OTHER_ORDERS.items():
        assert before in job
        job = job.replace(before, after)
    assert run(open_job(store, job), ALL_TICKS) == uninterrupted_output


def test_archived_state_contains_every_kind_of_row():
    store = MemoryStore()
    unpack_state(VERSIONS[-1], store)
    manifest = load_newest(store)
    nodes = [node for query in manifest.queries.values() for node in query.nodes]
    rows = [kept.stored for node in nodes for kept in node.arrangements.values()]
    assert sum(count > 0 for count in rows) >= 12
    assert any(live.marks for live in manifest.runs())
    assert any(live.released for live in manifest.runs())
    assert any(section_of(live.run.name) for live in manifest.runs())
    assert build_archive_path(VERSIONS[-1]).stat().st_size < 200_000


def test_migration_upgrades_an_older_manifest(monkeypatch, uninterrupted_output):
    """One of a format 7 that had another name for something."""
    store = MemoryStore()
    unpack_state(STATE_VERSION, store)
    name = manifest_name(KEPT_TICKS)
    text = verify_checksum(name, bytes(store.read(name))).decode()
    old = text.replace(f'"state_version":{STATE_VERSION}', '"state_version":7')
    old = old.replace('"fingerprints":', '"prints":', 1)
    store.delete(name)
    store.create(name, add_checksum(name, old))
    with pytest.raises(StateError) as refused:
        load_newest(store)
    assert refused.value.code == "state-version"

    def rename_fingerprints(manifest):
        return {("fingerprints" if key == "prints" else key): value for key, value in manifest.items()}

    monkeypatch.setattr(
        migrations.migrate_manifest, "__defaults__", ({7: rename_fingerprints, **migrations.STEPS},)
    )
    assert run(open_job(store), ALL_TICKS) == uninterrupted_output


def test_migration_steps_run_in_order():
    steps = {
        n: lambda manifest, n=n: {**manifest, "steps": [*manifest["steps"], n]}
        for n in range(5, STATE_VERSION)
    }
    found = migrate_manifest({"state_version": 5, "steps": []}, steps)
    assert found == {"state_version": STATE_VERSION, "steps": [*range(5, STATE_VERSION)]}
    unread = STATE_VERSION + 1
    for version, why in ((4, f"reads formats 5 to {STATE_VERSION}"), (unread, "newer version")):
        with pytest.raises(StateError) as refused:
            migrate_manifest({"state_version": version, "steps": []}, steps)
        assert why in f"{refused.value.message} {refused.value.hint}"
    assert json.loads(json.dumps(migrate_manifest({"x": 1}))) == {"x": 1}
