"""Arcs of DOUBLEs bit for bit as Java's StrictMath gives them: fdlibm's (see `numeric.fdlibm`)."""

from __future__ import annotations

import numpy as np

from watersmeet.kernel.expressions.functions.numeric.words import (
    Doubles,
    cut,
    high,
    polynomial,
    quiet,
)

_PIO2_HI, _PIO2_LO = 1.57079632679489655800e00, 6.12323399573676603587e-17
_PI, _PI_LO, _PIO4 = 3.14159265358979311600e00, 1.2246467991473531772e-16, 7.8539816339744827900e-01
_ARC_P = (
    1.66666666666666657415e-01, -3.25565818622400915405e-01, 2.01212532134862925881e-01,
    -4.00555345006794114027e-02, 7.91534994289814532176e-04, 3.47933107596021167570e-05,
)  # fmt: skip
_ARC_Q = (
    -2.40339491173441421878e00, 2.02094576023350569471e00, -6.88283971605453293030e-01,
    7.70381505559019352791e-02,
)  # fmt: skip
_ATAN_HI = np.array(
    [4.63647609000806093515e-01, 7.85398163397448278999e-01, 9.82793723247329054082e-01, _PIO2_HI]
)
_ATAN_LO = np.array(
    [2.26987774529616870924e-17, 3.06161699786838301793e-17, 1.39033110312309984516e-17, _PIO2_LO]
)
_ATAN = (
    3.33333333333329318027e-01, -1.99999999998764832476e-01, 1.42857142725034663711e-01,
    -1.11111104054623557880e-01, 9.09088713343650656196e-02, -7.69187620504482999495e-02,
    6.66107313738753120669e-02, -5.83357013379057348645e-02, 4.97687799461593236017e-02,
    -3.65315727442169155270e-02, 1.62858201153657823623e-02,
)  # fmt: skip


def _arc(t: Doubles) -> Doubles:
    return t * polynomial(t, _ARC_P) / (1.0 + t * polynomial(t, _ARC_Q))


@quiet
def asin(x: Doubles) -> Doubles:
    ix = high(x) & 0x7FFFFFFF
    size = np.abs(x)
    inner = np.where(ix < 0x3E400000, x, x + x * _arc(x * x))
    t = (1.0 - size) * 0.5
    r, s = _arc(t), np.sqrt(t)
    w = cut(s)
    c = (t - w * w) / (s + w)
    outer = np.where(
        ix >= 0x3FEF3333,
        _PIO2_HI - (2.0 * (s + s * r) - _PIO2_LO),
        _PIO4 - ((2.0 * s * r - (_PIO2_LO - 2.0 * c)) - (_PIO4 - 2.0 * w)),
    )
    angle = np.where(ix < 0x3FE00000, inner, np.where(x > 0, outer, -outer))
    angle = np.where(size == 1, x * _PIO2_HI + x * _PIO2_LO, angle)
    return np.where(size <= 1, angle, np.nan)


@quiet
def acos(x: Doubles) -> Doubles:
    ix = high(x) & 0x7FFFFFFF
    size = np.abs(x)
    inner = _PIO2_HI - (x - (_PIO2_LO - x * _arc(x * x)))
    inner = np.where(ix <= 0x3C600000, _PIO2_HI + _PIO2_LO, inner)
    z = (1.0 - size) * 0.5
    s, r = np.sqrt(z), _arc(z)
    negative = _PI - 2.0 * (s + (r * s - _PIO2_LO))
    df = cut(s)
    c = (z - df * df) / (s + df)
    positive = 2.0 * (df + (r * s + c))
    angle = np.where(ix < 0x3FE00000, inner, np.where(x < 0, negative, positive))
    angle = np.where(size == 1, np.where(x > 0, 0.0, _PI + 2.0 * _PIO2_LO), angle)
    return np.where(size <= 1, angle, np.nan)


@quiet
def atan(x: Doubles) -> Doubles:
    ix = high(x) & 0x7FFFFFFF
    size = np.abs(x)
    which = np.where(ix < 0x3FF30000, np.where(ix < 0x3FE60000, 0, 1), np.where(ix < 0x40038000, 2, 3))
    moved = np.where(which == 0, (2.0 * size - 1.0) / (2.0 + size), (size - 1.0) / (size + 1.0))
    moved = np.where(which == 2, (size - 1.5) / (1.0 + 1.5 * size), moved)
    moved = np.where(which == 3, -1.0 / size, moved)
    near = ix < 0x3FDC0000
    r = np.where(near, x, moved)
    z = r * r
    w = z * z
    sums = z * polynomial(w, _ATAN[0::2]) + w * polynomial(w, _ATAN[1::2])
    far = _ATAN_HI[which] - ((r * sums - _ATAN_LO[which]) - r)
    angle = np.where(near, x - x * sums, np.where(x < 0, -far, far))
    angle = np.where(ix < 0x3E200000, x, angle)
    end = _PIO2_HI + _PIO2_LO
    angle = np.where(ix >= 0x44100000, np.where(x > 0, end, -end), angle)
    return np.where(np.isnan(x), np.nan, angle)


@quiet
def atan2(y: Doubles, x: Doubles) -> Doubles:
    hx, hy = high(x), high(y)
    k = ((hy & 0x7FFFFFFF) - (hx & 0x7FFFFFFF)) >> 20
    z = atan(np.abs(y / x))
    z = np.where((hx < 0) & (k < -60), 0.0, z)
    z = np.where(k > 60, _PIO2_HI + 0.5 * _PI_LO, z)
    below = hy < 0
    angle = np.where(hx < 0, np.where(below, (z - _PI_LO) - _PI, _PI - (z - _PI_LO)), np.where(below, -z, z))
    side = np.where(below, -1.0, 1.0)
    angle = np.where(np.isinf(y), side * _PIO2_HI, angle)
    ends = np.where(np.isinf(y), np.where(hx < 0, 3.0 * _PIO4, _PIO4), np.where(hx < 0, _PI, 0.0))
    angle = np.where(np.isinf(x), side * ends, angle)
    angle = np.where(x == 0, side * _PIO2_HI, angle)
    angle = np.where(y == 0, np.where(hx < 0, side * _PI, y), angle)
    angle = np.where(x == 1.0, atan(y), angle)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, angle)
