"""Seconds of a join on Spark whose condition has a function that tasks do not compute, per function.

    python -m benchmarks.pair_functions [FUNCTION …]

Two files of 20,000 rows meet by 400 keys: a million candidate pairs, for none of which the condition holds.
The first line is of a condition that tasks compute.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path

from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.job.run import build_outputs, run
from watersmeet.runtime.spark.job.session import build_session_settings, start
from watersmeet.runtime.spark.job.settings import RunSettings

KEYS, ROWS_OF_KEY = 400, 50
COLUMNS = "id INT, k INT, t TIMESTAMP, x DOUBLE, s STRING, l ARRAY<INT>, v ARRAY<FLOAT>, m MAP<STRING, INT>"
PLAIN = "a.x + b.x > 5"
CONDITIONS = {
    **{name: f"{name}(a.s, b.s) = 5" for name in ("hash", "xxhash64")},
    **{name: f"{name}(a.x * b.x) > 99" for name in (
        "exp", "expm1", "asin", "acos", "atan", "sinh", "cosh", "asinh", "atanh", "ln", "log1p", "log2")},
    "acosh": "acosh(1 + a.x * b.x) > 99",
    **{name: f"{name}(a.x, b.x) > 99" for name in ("log", "pow", "hypot", "atan2")},
    **{name: f"{name}(a.v, b.v) > 99" for name in (
        "vector_inner_product", "vector_l2_distance", "vector_cosine_similarity")},
    "vector_norm": "vector_norm(if(a.x > b.x, a.v, b.v)) > 99",
    "vector_normalize": "vector_normalize(if(a.x > b.x, a.v, b.v))[0] > 99",
    "transform": "transform(a.l, e -> e + b.id)[0] = -1",
    "filter": "size(filter(a.l, e -> e > b.id)) > 99",
    "exists": "exists(a.l, e -> e = -b.id - 1)",
    "forall": "forall(a.l, e -> e = -b.id - 1)",
    "zip_with": "zip_with(a.l, b.l, (e, f) -> e + f)[0] = -1",
    "aggregate": "aggregate(a.l, b.id, (q, e) -> q + e) = -1",
    "map": "map('a', a.id + b.id)['a'] = -1",
    "map_from_arrays": "map_from_arrays(array('a', 'b'), array(a.id, b.id))['a'] = -1",
    "map_from_entries": "map_from_entries(array(struct('a', a.id + b.id)))['a'] = -1",
    "map_concat": "map_concat(a.m, map('c', b.id))['c'] = -1",
    "str_to_map": "str_to_map(concat(a.s, b.s), 'x', ':')['a'] = 'x'",
    "map_filter": "map_filter(a.m, (k, v) -> v > b.id)['a'] = -1",
    "transform_keys": "transform_keys(a.m, (k, v) -> concat(k, b.s))['a'] = -1",
    "transform_values": "transform_values(a.m, (k, v) -> v + b.id)['a'] = -1",
    "map_zip_with": "map_zip_with(a.m, b.m, (k, v, w) -> v + w)['a'] = -1",
}  # fmt: skip


def sources(place: Path) -> str:
    """Write the rows, and return the SQL that declares them."""
    rng, text = random.Random(1), "CREATE MAPPING o TYPE Memory;"
    for alias in ("a", "b"):
        folder = place / alias
        folder.mkdir()
        rows = [
            {
                "id": number,
                "k": number % KEYS,
                "t": f"2024-03-10T10:{number % 60:02}:00Z",
                "x": rng.uniform(0.1, 0.9),
                "s": f"text {rng.randrange(10**6)}",
                "l": [rng.randrange(9) for _ in range(4)],
                "v": [rng.random() for _ in range(4)],
                "m": {"a": rng.randrange(9), "b": 1},
            }
            for number in range(KEYS * ROWS_OF_KEY)
        ]
        (folder / "0.json").write_text("\n".join(map(json.dumps, rows)))
        text += (
            f"CREATE MAPPING r{alias} ({COLUMNS}) TYPE File OPTIONS ('path' = '{folder}', 'format' = 'json');"
        )
        text += f"CREATE VIEW {alias} AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE r{alias}, DESCRIPTOR(t),"
        text += " INTERVAL '1' DAY));"
    return text


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        declared = sources(place)
        spark = start(
            build_session_settings(master="local[2]", conf={"spark.driver.memory": "2g"}, jars=None)
        )
        chosen = {name: CONDITIONS[name] for name in names or CONDITIONS}
        for number, (name, condition) in enumerate(
            [
                ("", PLAIN),
                ("", "soundex(sentences(a.s)[0][0]) > b.s"),
                ("no function", PLAIN),
                *chosen.items(),
            ]
        ):
            near = "b.t BETWEEN a.t - INTERVAL '2' HOUR AND a.t + INTERVAL '2' HOUR"
            insert = f"INSERT INTO o SELECT a.id FROM a JOIN b ON a.k = b.k AND {near} AND ({condition})"
            job = parse_job(declared + insert)
            plan = plan_job(job)
            asked = RunSettings(str(place / f"checkpoint{number}"), partitions=2, until_caught_up=True)
            began = time.perf_counter()
            run(spark, plan, asked, build_outputs(job, plan, asked))
            if name:
                print(f"{name:26}{time.perf_counter() - began:8.2f} s", flush=True)
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
