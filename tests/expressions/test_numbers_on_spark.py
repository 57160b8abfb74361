# ruff: noqa: E501
"""Functions of numbers: what tasks compute is what Spark computes, to the last bit."""

from __future__ import annotations

import random
import struct
from decimal import Decimal

import pytest

from tests.expressions.checking import check, table_of

TYPES = {
    "t": "TINYINT", "h": "SMALLINT", "i": "INT", "b": "BIGINT", "f": "FLOAT", "x": "DOUBLE", "v": "DOUBLE", "m": "DECIMAL(10,2)",
    "w": "DECIMAL(6,4)", "g": "DECIMAL(38,10)", "z": "DECIMAL(20,0)", "k": "DECIMAL(38,0)", "q": "DECIMAL(3,3)", "p": "BOOLEAN", "n": "INT",
}  # fmt: skip
INTEGERS = ("t", "h", "i", "b")
DECIMALS = ("m", "w", "g", "z", "k", "q")
REALS = ("sqrt", "rint", "degrees", "radians", "sign", "signum")

EXPRESSIONS = [
    *(f"{function}({v}1)" for function in REALS for v in ("x", "v")), *(f"{function}(i1)" for function in ("sqrt", "sign")),
    "sqrt(w1)", "sqrt(f1)", "sqrt(b1)", "e() * x1", "pi() + x1",
    *(f"{function}({v}1)" for function in ("floor", "ceil", "ceiling") for v in (*INTEGERS, "f", "x", "v", *DECIMALS)),
    *(f"{function}({v}1, {n})" for function in ("floor", "ceil", "round", "bround") for v in ("t", "b", "m", "w", "q") for n in (0, 1, 3, -1, -2, -11)),
    *(f"{function}({v}1)" for function in ("round", "bround") for v in (*INTEGERS, "m", "w", "g", "z", "q")), "round(g1, 4)", "round(b1, -19)", "bround(b1, -18)", "round(b1, -20)",
    *(f"{v}1 {op} {v}2" for v in ("f", *DECIMALS) for op in ("+", "-", "*") if (v, op) not in (("g", "*"), ("k", "*"))), *(f"f1 {op} f2" for op in "/%"), "f1 + m1", "m1 * f1", "w1 - x1", "f1 % i2", "i1 / f2",
    *(f"{one} {op} {two}" for one, two in (("g1", "m2"), ("m1", "g2"), ("g1", "b2"), ("k1", "w2"), ("z1", "g2")) for op in ("+", "-", "*")),
    *(f"{one} {op} {two}" for one, two in (("m1", "m2"), ("m1", "w2"), ("w1", "m2"), ("w1", "w2"), ("m1", "i2"), ("i1", "m2"), ("q1", "m2"), ("t1", "q2"), ("w1", "h2")) for op in ("/", "%", "div")),
    "m1 % 0.07", "m1 / 3", "1 / m1", "m1 * 12 / 7", "m1 % 7", "m1 div 30", "pmod(m1, w2)", "pmod(m1, i2)", "pmod(x1, x2)", "pmod(v1, v2)", "pmod(f1, f2)", "pmod(t1, t2)", "pmod(h1, h2)", "pmod(i1, m2)", "pmod(i1, b2)", "mod(m1, w2)", "mod(x1, 2)",
    *(f"{function}({v}1, {v}2)" for function in ("try_add", "try_subtract", "try_multiply", "try_divide", "try_mod") for v in (*INTEGERS, "f", "x", "m", "w")),
    "try_add(g1, g2)", "try_multiply(k1, z2)", "try_multiply(g1, m2)", "try_add(i1, b2)", "try_divide(m1, i2)", "try_divide(i1, x2)",
    *(f"{function}({v}1)" for function in ("abs", "negative", "positive", "nullifzero") for v in ("h", "f", "m", "w", "z", "q")), "positive(g1)", "nullifzero(g1)", *(f"-{v}1" for v in ("h", "f", "z", "q")),
    *(f"nullifzero({v}1)" for v in ("i", "b", "x")), *(f"zeroifnull({v}1)" for v in (*INTEGERS, "f", "x", "m")), "isnan(f1)", "isnan(i1)",
    "nanvl(x1, x2)", "nanvl(f1, f2)", "nanvl(f1, x2)", "nanvl(x1, i2)", "nanvl(x1, try_divide(1, i2))",
    "width_bucket(v1, x1, v2, b1)", "width_bucket(v1, 0, 10, 5)", "width_bucket(m1, 100, -100, 7)", "width_bucket(x1, v1, x2, n1)",
    *(f"{function}({v}1, {by})" for function in ("shiftleft", "shiftright", "shiftrightunsigned") for v in INTEGERS for by in ("n1", "3")),
    "i1 << n1", "b1 >> n1", "t1 << 9", *(f"bit_count({v}1)" for v in (*INTEGERS, "p")), *(f"{function}({v}1, n1)" for function in ("bit_get", "getbit") for v in INTEGERS),
    *(f"{function}({v}1)" for function in ("bitmap_bit_position", "bitmap_bucket_number", "bin", "hex") for v in INTEGERS),
    "factorial(n1)", "factorial(t1)", "greatest(f1, m1)", "least(f1, f2)", "greatest(x1, w1, f1)", "f1 < m1", "f1 = w1", "f1 <=> x1", "m1 >= f2",
    *(f"CAST({v}1 AS {to})" for v in (*INTEGERS, "f", "x", "p", *DECIMALS) for to in ("TINYINT", "INT", "BIGINT", "BOOLEAN")),
    *(f"CAST({v}1 AS {to})" for v in (*INTEGERS, "p", *DECIMALS) for to in ("DECIMAL(10,2)", "DECIMAL(3,1)", "DECIMAL(38,20)")),
    *(f"CAST({v}1 AS FLOAT)" for v in (*INTEGERS, "f", "x", "v", "p")), *(f"CAST({v}1 AS DOUBLE)" for v in ("f", "p", "m", "w", "q")),
    "float(x1)", "float(b1)", "decimal(b1)", "decimal(g1)", "decimal(p1)", "bigint(g1)", "smallint(f1)",
    *(f"TRY_CAST({v}1 AS {to})" for v in ("b", "f", "x", "g") for to in ("TINYINT", "SMALLINT", "INT", "BIGINT")), *(f"TRY_CAST({v}1 AS DECIMAL(5,2))" for v in ("b", "g", "p", "i")),
]  # fmt: skip


def _decimals(rng: random.Random, digits: int, scale: int) -> list:
    most = 10**digits - 1
    some = [
        0,
        1,
        -1,
        5,
        -5,
        15,
        25,
        -15,
        45,
        50,
        -50,
        150,
        250,
        most,
        -most,
        most // 2,
        most - 4,
        10 ** (digits - 1),
    ]
    some += [rng.randint(-most, most) for _ in range(25)]
    some += [rng.choice((-1, 1)) * rng.randint(0, 10 ** rng.randint(1, digits) - 1) for _ in range(40)]
    some += [
        rng.randint(-9, 9) * 10 ** rng.randint(0, digits - 1) + rng.choice((0, 5 * 10 ** max(0, scale - 2)))
        for _ in range(15)
    ]
    return [Decimal(f"{each}E-{scale}") for each in some if abs(each) <= most] + [None]


def _doubles(rng: random.Random) -> list:
    nan, inf = float("nan"), float("inf")
    some = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, 2.0, 3.0, 10.0, 1000.0, 1e15, nan, inf, -inf, 5e-324,
            -5e-324, 2.0**-1022, 1.7976931348623157e308, 2.0**31, 2.0**53, 2.0**63, -(2.0**63), 709.782712893384, 709.79, -745.14, 22.5, 0.975,
            127.99, 128.0, -128.99, -129.0, 2147483647.5, -2147483648.5, 3.4028235677973366e38, 1e-46]  # fmt: skip
    some += [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(300)]
    some += [
        rng.uniform(-4, 4) * 2.0**exponent
        for exponent in (-1074, -1040, -1022, -500, 500, 1020)
        for _ in range(8)
    ]
    return some


def pools(rng: random.Random) -> dict[str, list]:
    def integers(bits: int) -> list:
        edge = 2 ** (bits - 1)
        some = [rng.randint(-edge, edge - 1) >> rng.randint(0, bits - 1) for _ in range(40)]
        return [
            0,
            1,
            -1,
            2,
            3,
            5,
            7,
            -7,
            15,
            25,
            49,
            50,
            51,
            55,
            65,
            edge - 1,
            -edge,
            edge - 2,
            1 - edge,
            *some,
            None,
        ]

    near = [rng.gauss(0, 1) * 10 ** rng.uniform(-12, 12) for _ in range(300)]
    return {
        "t": integers(8), "h": integers(16), "i": integers(32), "b": integers(64),
        "f": [0.0, -0.0, 0.1, 1.5, -1.5, 127.5, float("nan"), float("inf"), -float("inf"), 16777216.0, 1e-45, 3.4028234663852886e38, -1e20, 3e9, 1e19,
              *(struct.unpack("<f", rng.randbytes(4))[0] for _ in range(60)), None],
        "x": [*_doubles(rng), None],
        "v": [*near, *(rng.uniform(-1.1, 1.1) for _ in range(300)), *(rng.uniform(-720, 720) for _ in range(200)), None],
        "m": _decimals(rng, 10, 2), "w": _decimals(rng, 6, 4), "g": _decimals(rng, 38, 10), "z": _decimals(rng, 20, 0), "k": _decimals(rng, 38, 0), "q": _decimals(rng, 3, 3),
        "p": [True, False, None], "n": [*range(-3, 24), 31, 32, 33, 62, 63, 64, 65, -64, None],
    }  # fmt: skip


@pytest.mark.spark
def test_tasks_compute_what_spark_computes(spark, request, monkeypatch):
    seed = request.config.watersmeet_seed
    rows = table_of(TYPES, pools(random.Random(seed)), seed, 1500)
    check(spark, EXPRESSIONS, rows, TYPES, "UTC", monkeypatch)
