"""To TOML and back, and where keys stand."""

from __future__ import annotations

import ast
import random
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.texts import CLICKED, edit_pipeline_text
from watersmeet.errors import SeveralErrors, SpecError, WatersmeetError
from watersmeet.pipelines import (
    Join,
    Lookup,
    Pipeline,
    Source,
    StateStore,
    Target,
    Transform,
    Window,
    json_schema,
    model,
    pipeline,
    run_streaming_pipeline,
)
from watersmeet.pipelines.connection_options import ReferenceResolver
from watersmeet.pipelines.model import EVENT_TS
from watersmeet.pipelines.toml import Places
from watersmeet.spec.job_options import Options

MODEL = Path(model.__file__)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "users" / "pipelines.md"
ODD = [
    '"',
    "'",
    "\\",
    "\n",
    "\t",
    "\x7f",
    "\x00",
    "#",
    "=",
    "[",
    "]",
    ".",
    " ",
    "é",
    "ß",
    "😀",
    "a",
    "Z",
    "0",
    '"""',
    "'''",
]


def text(rng: random.Random, least: int = 1) -> str:
    return "".join(rng.choice(ODD) for _ in range(rng.randrange(least, 7)))


def option(rng: random.Random) -> Any:
    return rng.choice(
        [text(rng, 0), rng.randrange(-(10**20), 10**20), rng.random(), rng.random() < 0.5, {"from_file": "x"}]
    )


def options(rng: random.Random) -> dict[str, Any]:
    names = {f"o{number}{text(rng).replace(chr(0), '')}" for number in range(rng.randrange(4))}
    return {"connector": "memory", **{name: option(rng) for name in names}}


def columns(rng: random.Random) -> tuple[str, ...] | None:
    return rng.choice([None, tuple(f"{text(rng)}{number}" for number in range(1, 3))])


def window(rng: random.Random) -> Window:
    kind = rng.choice(["tumble", "hop", "session"])
    sizes = {"tumble": {"size": 5}, "hop": {"size": 6, "slide": 3}, "session": {"gap": 2}}[kind]
    return Window(
        kind=kind,
        event_time_column=text(rng),
        group_by=["a", text(rng) + "b"],
        aggregates={text(rng): "count(*)", "m": text(rng)},
        **sizes,
    )


def join(rng: random.Random) -> Join:
    late = rng.choice([{}, {"lateness": "join", "allowed_lateness": rng.randrange(10)}])
    apart = rng.choice([{"time_window": 7}, {"min_delta": -3, "max_delta": rng.randrange(-3, 5)}])
    keys = [text(rng) for _ in range(2)]
    return Join(
        left_source="s0",
        right_source="s1",
        left_keys=keys,
        right_keys=keys[::-1],
        how=rng.choice(["inner", "left", "right", "full"]),
        left_column_prefix=text(rng) + "l_",
        output_left_columns=columns(rng),
        output_right_columns=columns(rng),
        right_event_time_column=rng.choice([None, text(rng)]),
        **late,
        **apart,
    )


def drawn(rng: random.Random) -> Pipeline:
    joins = rng.random() < 0.7
    steps = [Transform(join=join(rng))] if joins else []
    if not joins:
        lookup = Lookup(
            source="s1", keys={text(rng): text(rng)}, columns=columns(rng), column_prefix=text(rng, 0)
        )
        steps.append(Transform(lookups={f"t{text(rng)}".replace(".", ""): lookup}))
    windowed = rng.random() < 0.5
    if windowed:
        steps.append(Transform(window=window(rng)))
    return Pipeline(
        name="drawn",
        description=rng.choice([None, text(rng, 0)]),
        sources=[
            Source(
                name=f"s{number}",
                connection=options(rng),
                columns={f"{text(rng)}{place}": text(rng) for place in range(rng.randrange(3))},
                query=rng.choice([None, text(rng)]),
                lag=rng.randrange(3) if joins or (windowed and number == 0) else 0,
                hot_key_rows_per_second=rng.choice([None, 0.5, 3.0]),
            )
            for number in range(2)
        ],
        transform=steps,
        target=Target(
            connection=options(rng), name=rng.choice([None, text(rng)]), primary_key=columns(rng) or ()
        ),
        state_store=rng.choice(
            [
                None,
                StateStore(kind="files", url="here"),
                StateStore(kind="object", url="s3://b/p", allow_http=True),
            ]
        ),
        settings={"max_rows": rng.randrange(1, 9), "spark.sql.x": option(rng)},
    )


def drawn_ones(seed: int, count: int) -> Iterator[Pipeline]:
    number, refused = seed, list[WatersmeetError]()
    while count:
        try:
            made = drawn(random.Random(number))
        except (SpecError, SeveralErrors) as error:
            refused.append(error)
        else:
            yield made
            count -= 1
        number += 1
    codes = {one.code for error in refused for one in getattr(error, "errors", [error])}
    of_names = {"duplicate-column", "duplicate-option", "bad-value", "open-secret"}
    assert codes <= of_names, "of names that were drawn"


def test_from_python_to_toml_and_back_it_is_the_same(seed):
    for made in drawn_ones(seed, 300):
        written = made.to_toml()
        assert Pipeline.from_toml(written) == made, written
        assert Pipeline.from_toml(written).to_toml() == written
        assert Places(written, None).keys == set(iterate_key_paths(tomllib.loads(written))), written


def iterate_key_paths(value: Any, key: str = "") -> Iterator[str]:
    """All ways to what is in it."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, under in inner:
        way = f"{key}.{name}" if key else str(name)
        yield way
        yield from iterate_key_paths(under, way)


HARD = '''\
# [no.table]
a = 1 # b = 2
"b.c" . 'd' = "[x]\\"y = 1"
e = """
[not.a.table]
f = 1 "" \\""""
g = \'\'\'
[[neither]] = '' \'\'\'
h = [ 1, [ "a]", { i = 1, j.k = "}" } ], # , [
  # ] 5
  2, ]
l = { m = [], n = {} , "o" = 1979-05-27 07:32:00 }
[p . "q r".s]
t = +inf
[[u]]
[[u.v]]
w = 1
[[u.v]]
w = """"two"""""
[u.x]
y = 0x1F
[[u]]
z = false
[u.x]
y = 'c:\\'
'''


def test_keys_are_found_wherever_they_stand():
    places = Places(HARD, "hard.toml")
    assert places.keys == set(iterate_key_paths(tomllib.loads(HARD)))
    lines = HARD.splitlines()
    for key, line in {
        ("a",): "a = 1 # b = 2",
        ("g",): "g = '''",
        ("p", "q r", "s", "t"): "t = +inf",
        ("u", 0, "v", 1, "w"): 'w = """"two"""""',
        ("u", 1, "x", "y"): "y = 'c:\\'",
        ("u", 1, "nothing"): "[[u]]",
    }.items():
        assert lines[places.of(key).line - 1] == line, key
    assert places.of(("h", 1, 1, "j", "k")).column == HARD.splitlines()[8].index("j.k") + 1
    assert places.of(("nothing",)).line == 1


def test_the_page_shows_a_pipeline_that_is_right():
    (block,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert Pipeline.from_toml(block).job().plan.queries


def test_the_schema_knows_every_key():
    schema = json_schema()
    assert set(schema["properties"]) == set(Pipeline.model_fields)
    for part in (Source, Target, Transform, Join, Window, Lookup, StateStore):
        own = schema["$defs"][part.__name__]
        assert set(own["properties"]) == set(part.model_fields)
        assert own["additionalProperties"] is False


@pytest.mark.parametrize("part", [Join, Lookup, Target, Window])
def test_type_checker_signature_lists_every_key(part):
    """By an ``__init__`` that is for them alone, since more may be given than is kept."""
    (made,) = (
        node for node in ast.parse(MODEL.read_text()).body if getattr(node, "name", "") == part.__name__
    )
    (block,) = (node for node in made.body if isinstance(node, ast.If))
    (function,) = block.body
    told = {
        key.arg: None if default is None else ast.unparse(default)
        for key, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    }
    kept = {
        name: None if field.is_required() else repr(field.default).replace(repr(EVENT_TS), "EVENT_TS")
        for name, field in part.model_fields.items()
    }
    assert told == kept


def test_dotted_options_are_names_with_dots():
    made = Pipeline.from_toml(CLICKED.replace('connector = "memory"', 'connector = "memory"\na.b.c = 1', 1))
    assert made.sources[0].connection == {"connector": "memory", "a.b.c": 1}


def test_options_resolve_secrets_from_environment_and_files(monkeypatch, tmp_path):
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.setenv("WS_TOKEN", "value-of-the-environment")
    options = f'''connector = "file"
format = "json"
path = "${{WS_TOKEN}}!"
header = {{ from_file = "{tmp_path}/secret" }}
timeZone = "$${{X}}"'''
    text = CLICKED.replace('[target.connection]\nconnector = "memory"', f"[target.connection]\n{options}")
    made = Pipeline.from_toml(text)
    elsewhere = ReferenceResolver()
    assert elsewhere.options(("target", "connection"), made.target.connection) == {
        "connector": "file",
        "format": "json",
        "path": "value-of-the-environment!",
        "header": "from a file",
        "timeZone": "${X}",
    }
    assert elsewhere.problems == []
    assert "from a file" not in repr(made)
    assert "from the" not in made.to_toml()
    only_path = text.replace("header", "# header").replace("timeZone", "# timeZone")
    assert (
        Pipeline.from_toml(only_path).job().description.inserts[0].sink.options["path"]
        == "value-of-the-environment!"
    )


def test_state_locations_resolve_environment_variables(monkeypatch):
    """A directory named ``${WS_PLACE}`` is nobody's wish."""
    monkeypatch.setenv("WS_PLACE", "/disk")
    monkeypatch.setenv("WS_STORE", "s3://bucket")
    monkeypatch.setenv("WS_FILE", "file:///disk")
    store = '[state_store]\nkind = "object"\nurl = "s3://bucket/clicked"\n'

    def run(instead: str, first: str = "") -> dict[str, str]:
        return dict(Pipeline.from_toml(first + CLICKED.replace(store, instead)).job().description.run)

    assert run("", 'checkpoint = "${WS_PLACE}/a"\n') == {"checkpoint": "/disk/a"}
    assert run('[state_store]\nkind = "files"\nurl = "${WS_FILE}/b"\n') == {"checkpoint": "/disk/b"}
    said = 'kind = "object"\nurl = "${WS_STORE}/c"\nendpoint = "http:/${WS_PLACE}"\nregion = "$${X}"\n'
    assert run(f"[state_store]\n{said}") == {
        "checkpoint": ".watersmeet/clicked",
        "state_store": "s3://bucket/c",
        "state_store_endpoint": "http://disk",
        "state_store_region": "${X}",
    }
    for url, there in (
        ("postgresql://db/x", "postgresql://db/x?pipeline=clicked"),
        ("postgresql://db/x?a=b", "postgresql://db/x?a=b&pipeline=clicked"),
        ("postgresql://db/x?pipeline=own", "postgresql://db/x?pipeline=own"),
    ):
        said = run(f'[state_store]\nkind = "postgres"\nurl = "{url}"\n')
        assert said["state_store"] == there, "two pipelines would have one state"
    for kind, url in (("postgres", "${WS_STORE}"), ("object", "${WS_PLACE}"), ("files", "${WS_STORE}/d")):
        with pytest.raises(SpecError) as raised:
            run(f'[state_store]\nkind = "{kind}"\nurl = "{url}"\n')
        assert (raised.value.code, raised.value.message.split()[0]) == ("bad-store", "state_store.url")


def test_the_decorator_gives_the_steps_their_sources():
    sources = [
        Source(name=n, connection={"connector": "memory"}, columns={"k": "INT", "t": "INT"}) for n in "ab"
    ]
    target = Target(connection={"connector": "memory"})

    @pipeline(sources=sources, target=target)
    def join_a_with_b(b, a):
        """What met.

        And more."""
        return Join(
            left_source=a,
            right_source=b,
            left_keys="k",
            right_keys="k",
            time_window=5,
            event_time_column="t",
        )

    assert (join_a_with_b.name, join_a_with_b.description, join_a_with_b.join.left_source) == (
        "join_a_with_b",
        "What met.",
        "a",
    )
    with pytest.raises(SpecError, match='no source "c"'):
        pipeline(sources=sources, target=target)(lambda c: None)
    with pytest.raises(SpecError, match="not a step of a pipeline"):
        pipeline(sources=sources, target=target, name="x")(lambda a: 5)


def test_python_errors_name_the_invalid_argument():
    with pytest.raises(SpecError, match='how is "lft"') as raised:
        Join(left_source="a", right_source="b", left_keys="k", right_keys="k", time_window=5, how="lft")
    assert raised.value.hint == 'did you mean "left"?'
    source = Source(name="a", connection={"connector": "memory"}, columns={"k": "INT", "t": "INT"})
    join = Join(left_source="a", right_source="a", left_keys="k", right_keys=["k", "t"], time_window=5)
    target = Target(connection={"connector": "memory"})
    with pytest.raises(SeveralErrors) as several:
        run_streaming_pipeline(name="x", sources=[source], target=target, join=join)
    assert [error.code for error in several.value.errors] == ["same-source", "key-count"]
    with pytest.raises(SpecError, match="given together with join"):
        run_streaming_pipeline(name="x", sources=[source], target=target, join=join, transform=[])


def test_earlier_names_of_lengths_still_count_with_a_warning():
    """They were numbers of milliseconds; ``late_data`` was the rule of lateness."""
    old = edit_pipeline_text(
        ('lag = "10 seconds"', "lag_ms = 10_000"),
        ('min_delta = "0 seconds"\nmax_delta = "5 minutes"', "min_delta_ms = 0\nmax_delta_ms = 300_000"),
        (
            'lateness = "join"\nallowed_lateness = "1 minute"',
            'late_data = "reopen"\nallowed_lateness_ms = 60_000',
        ),
    )
    with pytest.warns(FutureWarning) as told:
        pipeline = Pipeline.from_toml(old)
    assert pipeline == Pipeline.from_toml(CLICKED)
    words = [str(one.message) for one in told]
    assert 'lag_ms is an earlier name: write lag = "10 seconds"' in words
    assert 'late_data is an earlier name: write lateness = "join"' in words
    assert len(words) == 5


def test_a_join_with_earlier_names_keeps_its_rule_of_lateness():
    text = edit_pipeline_text(
        ('max_delta = "5 minutes"', "max_delta_ms = 300_000"),
        ('lateness = "join"\nallowed_lateness = "1 minute"\n', ""),
    )
    with pytest.warns(FutureWarning) as told:
        pipeline = Pipeline.from_toml(text)
    assert pipeline.join.lateness == "join"
    assert any('lateness = "join"' in str(one.message) for one in told)


def test_lengths_that_are_none_are_refused():
    for length, words in (
        ("INTERVAL '1' DAY * 10000000000", "longer than"),
        (-5, "below zero"),
        (None, "length"),
    ):
        with pytest.raises(SpecError, match=words):
            Source(name="a", connection={"connector": "memory"}, lag=length)
    with pytest.warns(FutureWarning), pytest.raises(SpecError, match='"-5 milliseconds"'):
        Source(name="a", connection={"connector": "memory"}, lag_ms=-5)


def test_a_join_is_late_as_in_sql_unless_it_says_otherwise():
    text = edit_pipeline_text(('lateness = "join"\nallowed_lateness = "1 minute"\n', ""))
    assert Pipeline.from_toml(text).job().description.options.lateness is Options().lateness
