"""Exponentials, logarithms and powers of DOUBLEs bit for bit as Java's StrictMath gives them.

StrictMath is specified to be fdlibm, the "Freely Distributable Math Library" (K. C. Ng, Sun Microsystems,
1993; netlib.org/fdlibm), whose published algorithms are written here over arrays: additions, products,
quotients, roots and bits of IEEE doubles alone, in the order that fdlibm has them. Arrays of DOUBLEs in and
out, no NULLs.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernel.expressions.functions.numeric.words import (
    Doubles,
    Whole,
    cut,
    high,
    of_high,
    polynomial,
    quiet,
    scaled,
    with_high,
)

_TWO54 = 2.0**54
_LN2_HI, _LN2_LO = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_INV_LN2 = 1.44269504088896338700e00
_LN2 = 6.93147180559945286227e-01
_P = (
    1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05,
    -1.65339022054652515390e-06, 4.13813679705723846039e-08,
)  # fmt: skip
_L = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
_Q = (
    -3.33333333333331316428e-02, 1.58730158725481460165e-03, -7.93650757867487942473e-05,
    4.00821782732936239552e-06, -2.01099218183624371326e-07,
)  # fmt: skip
_POW = (
    5.99999999999994648725e-01, 4.28571428578550184252e-01, 3.33333329818377432918e-01,
    2.72728123808534006489e-01, 2.30660745775561754067e-01, 2.06975017800338417784e-01,
)  # fmt: skip


@quiet
def exp(x: Doubles) -> Doubles:
    hx = high(x) & 0x7FFFFFFF
    sign = np.where(x < 0, -1.0, 1.0)
    reduced = hx > 0x3FD62E42
    near = hx < 0x3FF0A2B2
    k = _whole(_INV_LN2 * x + 0.5 * sign)
    k = np.where(reduced, np.where(near, _whole(sign), k), 0)
    t = k.astype(np.float64)
    hi = np.where(near, x - _LN2_HI * sign, x - t * _LN2_HI)
    lo = np.where(near, _LN2_LO * sign, t * _LN2_LO)
    r = np.where(reduced, hi - lo, x)
    t = r * r
    c = r - t * polynomial(t, _P)
    whole = 1.0 - ((r * c) / (c - 2.0) - r)
    y = 1.0 - ((lo - (r * c) / (2.0 - c)) - hi)
    grown = np.where(k >= -1021, scaled(y, k), scaled(y, k + 1000) * 2.0**-1000)
    value = np.where(reduced, grown, whole)
    value = np.where(hx < 0x3E300000, 1.0 + x, value)
    value = np.where(x > 7.09782712893383973096e02, np.inf, value)
    value = np.where(x < -7.45133219101941108420e02, 0.0, value)
    return np.where(np.isnan(x), np.nan, value)


def _whole(x: Doubles) -> Whole:
    """Cut to a whole number; what is none, or too great, is 0."""
    fits = np.abs(x) < 1e9
    return np.where(fits, x, 0.0).astype(np.int64)


@quiet
def expm1(x: Doubles) -> Doubles:
    hx = high(x) & 0x7FFFFFFF
    sign = np.where(x < 0, -1.0, 1.0)
    reduced = hx > 0x3FD62E42
    near = hx < 0x3FF0A2B2
    k = np.where(reduced, np.where(near, _whole(sign), _whole(_INV_LN2 * x + 0.5 * sign)), 0)
    t = k.astype(np.float64)
    hi = np.where(near, x - _LN2_HI * sign, x - t * _LN2_HI)
    lo = np.where(near, _LN2_LO * sign, t * _LN2_LO)
    r = np.where(reduced, hi - lo, x)
    c = (hi - r) - lo
    hfx = 0.5 * r
    hxs = r * hfx
    r1 = 1.0 + hxs * polynomial(hxs, _Q)
    t = 3.0 - r1 * hfx
    e = hxs * ((r1 - t) / (6.0 - r * t))
    whole = r - (r * e - hxs)
    e = (r * (e - c) - c) - hxs
    few = np.clip(k, 0, 62)
    below = of_high(0x3FF00000 - (np.int64(0x200000) >> few))
    power = of_high((0x3FF - few) << 20)
    value = np.where(k < 20, scaled(below - (e - r), k), scaled((r - (e + power)) + 1.0, k))
    value = np.where((k <= -2) | (k > 56), scaled(1.0 - (e - r), k) - 1.0, value)
    value = np.where(k == 1, np.where(r < -0.25, -2.0 * (e - (r + 0.5)), 1.0 + 2.0 * (r - e)), value)
    value = np.where(k == -1, 0.5 * (r - e) - 0.5, value)
    value = np.where(k == 0, whole, value)
    value = np.where(hx < 0x3C900000, x, value)
    value = np.where((hx >= 0x4043687A) & (x < 0), -1.0, value)
    value = np.where(x > 7.09782712893383973096e02, np.inf, value)
    return np.where(np.isnan(x), np.nan, value)


def _normal(x: Doubles) -> tuple[Doubles, Whole]:
    """Subnormal numbers times 2⁵⁴, and the power of 2 that is to be taken off again."""
    small = high(x) < 0x00100000
    return np.where(small, x * _TWO54, x), np.where(small, -54, 0)


def _logarithm_s_ends(x: Doubles, value: Doubles) -> Doubles:
    value = np.where(x == np.inf, np.inf, value)
    value = np.where(x == 0, -np.inf, value)
    return np.where(np.isnan(x) | (x < 0), np.nan, value)


@quiet
def log(x: Doubles) -> Doubles:
    normal, k = _normal(x)
    hx = high(normal)
    k = k + (hx >> 20) - 1023
    hx = hx & 0x000FFFFF
    i = (hx + 0x95F64) & 0x100000
    k = k + (i >> 20)
    f = with_high(normal, hx | (i ^ 0x3FF00000)) - 1.0
    dk = k.astype(np.float64)
    r = f * f * (0.5 - 0.33333333333333333 * f)
    tiny = np.where(k == 0, f - r, dk * _LN2_HI - ((r - dk * _LN2_LO) - f))
    tiny = np.where(f == 0, np.where(k == 0, 0.0, dk * _LN2_HI + dk * _LN2_LO), tiny)
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    r = z * polynomial(w, _L[0::2]) + w * polynomial(w, _L[1::2])
    half = 0.5 * f * f
    one = np.where(
        k == 0, f - (half - s * (half + r)), dk * _LN2_HI - ((half - (s * (half + r) + dk * _LN2_LO)) - f)
    )
    other = np.where(k == 0, f - s * (f - r), dk * _LN2_HI - ((s * (f - r) - dk * _LN2_LO) - f))
    value = np.where(((hx - 0x6147A) | (0x6B851 - hx)) > 0, one, other)
    value = np.where((0x000FFFFF & (2 + hx)) < 3, tiny, value)
    return _logarithm_s_ends(x, value)


@quiet
def log1p(x: Doubles) -> Doubles:
    hx = high(x)
    ax = hx & 0x7FFFFFFF
    direct = (hx < 0x3FDA827A) & ((hx > 0) | (hx <= 0xBFD2BEC3 - (1 << 32)))
    small = hx < 0x43400000
    u = np.where(small, 1.0 + x, x)
    hu = high(u)
    k = np.where(direct, 0, (hu >> 20) - 1023)
    c = np.where(small, np.where(k > 0, 1.0 - (u - x), x - (u - 1.0)) / u, 0.0)
    hu = hu & 0x000FFFFF
    low = hu < 0x6A09E
    u = with_high(u, np.where(low, hu | 0x3FF00000, hu | 0x3FE00000))
    k = np.where(direct | low, k, k + 1)
    hu = np.where(direct, 1, np.where(low, hu, (0x00100000 - hu) >> 2))
    f = np.where(direct, x, u - 1.0)
    dk = k.astype(np.float64)
    half = 0.5 * f * f
    carried = dk * _LN2_LO + c
    r = half * (1.0 - 0.66666666666666666 * f)
    tiny = np.where(k == 0, f - r, dk * _LN2_HI - ((r - carried) - f))
    tiny = np.where(f == 0, np.where(k == 0, 0.0, dk * _LN2_HI + (c + dk * _LN2_LO)), tiny)
    s = f / (2.0 + f)
    z = s * s
    r = z * polynomial(z, _L)
    value = np.where(
        k == 0, f - (half - s * (half + r)), dk * _LN2_HI - ((half - (s * (half + r) + carried)) - f)
    )
    value = np.where(hu == 0, tiny, value)
    value = np.where(ax < 0x3E200000, np.where(ax < 0x3C900000, x, x - x * x * 0.5), value)
    value = np.where(x == np.inf, np.inf, value)
    value = np.where(x == -1, -np.inf, value)
    return np.where(np.isnan(x) | (x < -1), np.nan, value)


_LARGEST = np.float64(np.uint64(0x408633CE8FB9F87D).view(np.float64))
"""Up to here `sinh` and `cosh` are finite."""


@quiet
def sinh(x: Doubles) -> Doubles:
    size = np.abs(x)
    ix = high(size)
    h = np.where(x < 0, -0.5, 0.5)
    t = expm1(size)
    value = np.where(ix < 0x3FF00000, h * (2.0 * t - t * t / (t + 1.0)), h * (t + t / (t + 1.0)))
    value = np.where(ix < 0x3E300000, x, value)
    value = np.where(ix >= 0x40360000, h * exp(size), value)
    w = exp(0.5 * size)
    value = np.where(ix >= 0x40862E42, (h * w) * w, value)
    value = np.where(size > _LARGEST, np.copysign(np.inf, x), value)
    return np.where(np.isnan(x), np.nan, value)


@quiet
def cosh(x: Doubles) -> Doubles:
    size = np.abs(x)
    ix = high(size)
    t = expm1(size)
    w = 1.0 + t
    small = np.where(ix < 0x3C800000, w, 1.0 + (t * t) / (w + w))
    t = exp(size)
    value = np.where(ix < 0x3FD62E43, small, 0.5 * t + 0.5 / t)
    value = np.where(ix >= 0x40360000, 0.5 * t, value)
    w = exp(0.5 * size)
    value = np.where(ix >= 0x40862E42, (0.5 * w) * w, value)
    value = np.where(size > _LARGEST, np.inf, value)
    return np.where(np.isnan(x), np.nan, value)


@quiet
def hypot(x: Doubles, y: Doubles) -> Doubles:
    a, b = np.maximum(np.abs(x), np.abs(y)), np.minimum(np.abs(x), np.abs(y))
    far = (high(a) - high(b)) > 0x3C00000
    plain = a + b
    back = np.ones_like(a)
    great = high(a) > 0x5F300000
    a, b, back = (np.where(great, moved, own) for moved, own in (
        (a * 2.0**-600, a), (b * 2.0**-600, b), (back * 2.0**600, back)))  # fmt: skip
    small = high(b) < 0x20B00000
    subnormal = b < 2.0**-1022
    unscaled_a, unscaled_b = high(a), high(b)
    by = np.where(subnormal, 2.0**1022, 2.0**600)
    a, b, back = (np.where(small, moved, own) for moved, own in ((a * by, a), (b * by, b), (back / by, back)))
    # The upper words of what is scaled by 2¹⁰²² stay as they were: by intent or not, that is the algorithm.
    ha, hb = np.where(subnormal, unscaled_a, high(a)), np.where(subnormal, unscaled_b, high(b))
    w = a - b
    t1 = of_high(ha)
    t2 = a - t1
    one = np.sqrt(t1 * t1 - (b * (-b) - t2 * (a + t1)))
    twice = a + a
    y1 = of_high(hb)
    y2 = b - y1
    t1 = of_high(ha + 0x00100000)
    t2 = twice - t1
    other = np.sqrt(t1 * y1 - (w * (-w) - (t1 * y2 + t2 * b)))
    value = back * np.where(w > b, one, other)
    value = np.where(far | (np.minimum(np.abs(x), np.abs(y)) == 0), plain, value)
    value = np.where(np.isnan(x) | np.isnan(y), np.nan, value)
    return np.where(np.isinf(x) | np.isinf(y), np.inf, value)


@quiet
def pow(x: Doubles, y: Doubles) -> Doubles:
    size, power = np.abs(x), np.abs(y)
    t1, t2 = _log2_of_near(size)
    near = power > np.float64(np.uint64(0x41E00000FFFFFFFF).view(np.float64))
    far1, far2 = _log2_of(size)
    t1, t2 = np.where(near, t1, far1), np.where(near, t2, far2)
    odd = (np.floor(y) == y) & (power < 2.0**53) & (np.fmod(power, 2.0) == 1)
    whole = (np.floor(y) == y) & np.isfinite(y)
    sign = np.where((high(x) < 0) & odd, -1.0, 1.0)
    value = sign * _exp2(y, t1, t2)
    # |y| > 2³¹: beyond the numbers next to 1 all is 0 or infinite.
    ix = high(size)
    value = np.where(near & (ix < 0x3FEFFFFF), np.where(y < 0, sign * np.inf, sign * 0.0), value)
    value = np.where(near & (ix > 0x3FF00000), np.where(y > 0, sign * np.inf, sign * 0.0), value)
    value = np.where((x < 0) & ~whole, np.nan, value)
    # 0, 1 and infinity.
    ends = (size == 0) | (size == 1) | np.isinf(size)
    z = np.where(y < 0, 1.0 / size, size)
    z = np.where(high(x) < 0, np.where((x == -1) & ~whole, np.nan, np.where(odd, -z, z)), z)
    value = np.where(ends, z, value)
    value = np.where((y == 0.5) & (x >= -np.finfo(np.float64).max), np.sqrt(x + 0.0), value)
    value = np.where(y == 2, x * x, value)
    value = np.where(y == 1, x, np.where(y == -1, 1.0 / x, value))
    beyond = np.where(size > 1, np.where(y > 0, y, 0.0), np.where(y < 0, -y, 0.0))
    value = np.where(np.isinf(y), np.where(size == 1, np.nan, beyond), value)
    value = np.where(np.isnan(x) | np.isnan(y), np.nan, value)
    return np.where(y == 0, 1.0, value)


def _log2_of_near(size: Doubles) -> tuple[Doubles, Doubles]:
    """log₂ of numbers next to 1, in two parts."""
    t = size - 1.0
    w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25))
    u = 1.44269502162933349609e00 * t
    v = t * 1.92596299112661746887e-08 - w * _INV_LN2
    t1 = cut(u + v)
    return t1, v - (t1 - u)


def _log2_of(size: Doubles) -> tuple[Doubles, Doubles]:
    """log₂ in two parts."""
    small = high(size) < 0x00100000
    ax = np.where(small, size * 2.0**53, size)
    ix = high(ax)
    n = np.where(small, -53, 0) + (ix >> 20) - 0x3FF
    j = ix & 0x000FFFFF
    upper = j >= 0xBB67A
    k = ((j > 0x3988E) & ~upper).astype(np.int64)
    n = np.where(upper, n + 1, n)
    ix = (j | 0x3FF00000) - np.where(upper, 0x00100000, 0)
    ax = with_high(ax, ix)
    bp = np.where(k == 1, 1.5, 1.0)
    u = ax - bp
    v = 1.0 / (ax + bp)
    ss = u * v
    s_h = cut(ss)
    t_h = of_high(((ix >> 1) | 0x20000000) + 0x00080000 + (k << 18))
    t_l = ax - (t_h - bp)
    s_l = v * ((u - s_h * t_h) - s_h * t_l)
    s2 = ss * ss
    r = s2 * s2 * polynomial(s2, _POW) + s_l * (s_h + ss)
    s2 = s_h * s_h
    t_h = cut(3.0 + s2 + r)
    t_l = r - ((t_h - 3.0) - s2)
    u = s_h * t_h
    v = s_l * t_h + t_l * ss
    p_h = cut(u + v)
    p_l = v - (p_h - u)
    z_h = 9.61796700954437255859e-01 * p_h
    z_l = (
        -7.02846165095275826516e-09 * p_h
        + p_l * 9.61796693925975554329e-01
        + np.where(k == 1, 1.35003920212974897128e-08, 0.0)
    )
    dp_h = np.where(k == 1, 5.84962487220764160156e-01, 0.0)
    t = n.astype(np.float64)
    t1 = cut(((z_h + z_l) + dp_h) + t)
    return t1, z_l - (((t1 - t) - dp_h) - z_h)


def _exp2(y: Doubles, t1: Doubles, t2: Doubles) -> Doubles:
    """2 to the ``y * (t1 + t2)``."""
    y1 = cut(y)
    p_l = (y - y1) * t1 + y * t2
    p_h = y1 * t1
    z = p_l + p_h
    over = (z > 1024) | ((z == 1024) & (p_l + 8.0085662595372944372e-17 > z - p_h))
    under = (z < -1075) | ((z == -1075) & (p_l <= z - p_h))
    p_h, p_l = np.where(over | under, 0.0, p_h), np.where(over | under, 0.0, p_l)
    z = p_l + p_h
    j = high(z)
    i = j & 0x7FFFFFFF
    k = np.clip((i >> 20) - 0x3FF, -1, 30)
    n = j + (np.int64(0x00100000) >> (k + 1))
    k = np.clip(((n & 0x7FFFFFFF) >> 20) - 0x3FF, 0, 20)
    t = of_high(_signed(n & 0xFFFFFFFF & ~(np.int64(0x000FFFFF) >> k)))
    n = ((n & 0x000FFFFF) | 0x00100000) >> (20 - k)
    n = np.where(j < 0, -n, n)
    rounded = i > 0x3FE00000
    n = np.where(rounded, n, 0)
    p_h = np.where(rounded, p_h - t, p_h)
    t = cut(p_l + p_h)
    u = t * 6.93147182464599609375e-01
    v = (p_l - (t - p_h)) * 6.93147180559945286227e-01 + t * -1.90465429995776804525e-09
    z = u + v
    w = v - (z - u)
    t = z * z
    t1 = z - t * polynomial(t, _P)
    r = (z * t1) / (t1 - 2.0) - (w + z * w)
    z = 1.0 - (r - z)
    normal = ((high(z) + (n << 20)) >> 20) > 0
    value = np.where(normal, scaled(z, n), np.ldexp(z, n.astype(np.int32)))
    return np.where(over, np.inf, np.where(under, 0.0, value))


def _signed(word: Whole) -> Whole:
    return np.where(word >= 1 << 31, word - (1 << 32), word)


@quiet
def asinh(x: Doubles) -> Doubles:
    size = np.abs(x)
    t = x * x
    value = log1p(size + t / (1.0 + np.sqrt(1.0 + t)))
    value = np.where(high(size) > 0x40000000, log(2.0 * size + 1.0 / (np.sqrt(t + 1.0) + size)), value)
    value = np.copysign(np.where(high(size) > 0x41B00000, log(size) + _LN2, value), x)
    return np.where((high(size) < 0x3E300000) | ~np.isfinite(x), x, value)


@quiet
def acosh(x: Doubles) -> Doubles:
    t = x - 1.0
    value = log1p(t + np.sqrt(2.0 * t + t * t))
    value = np.where(high(x) > 0x40000000, log(2.0 * x - 1.0 / (x + np.sqrt(x * x - 1.0))), value)
    value = np.where(high(x) >= 0x41B00000, log(x) + _LN2, value)
    value = np.where(x == 1, 0.0, value)
    return np.where(x >= 1, value, np.nan)
