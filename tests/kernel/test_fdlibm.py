"""What StrictMath gives at the corners of its algorithms; random values are in `tests/plan/exact`."""

from __future__ import annotations

import numpy as np
import pytest

from watersmeet.kernel.expressions.functions.numeric import arcs, fdlibm


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("hypot", ("-0x0.2b7f36d2e1c88p-1022", "-0x1.75fd810034531p-1022"), "0x1.7882de879bc2bp-1022"),
        ("pow", ("-0x0p0", "-0x1.8p1"), "-inf"),
        ("pow", ("-0x1p0", "inf"), "nan"),
        ("atan2", ("0x0p0", "-0x0p0"), "0x1.921fb54442d18p1"),
        ("exp", ("0x1.62e42fefa39f0p9",), "inf"),
        ("log", ("0x0.0000000000001p-1022",), "-0x1.74385446d71c3p9"),
        ("log1p", ("-0x0p0",), "-0x0p0"),
        ("sinh", ("-0x1.633ce8fb9f87ep9",), "-inf"),
    ],
)
def test_corners(function, arguments, expected):
    given = [np.array([float.fromhex(each)]) for each in arguments]
    found = float(getattr(arcs if function == "atan2" else fdlibm, function)(*given)[0])
    assert found.hex() == float.fromhex(expected).hex()
