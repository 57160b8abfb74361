"""Digests, hashes and codes of texts and bytes."""

from __future__ import annotations

import base64 as base64_
import binascii
import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.kernel.expressions.functions.base import (
    INT64,
    Raw,
    Wrong,
    of_distinct,
    raw,
)

Words = npt.NDArray[Any]


def digest(data: pa.Array, name: str) -> pa.Array:
    """`md5`, `sha1` and `sha2` of constant length, in hexadecimal digits."""
    return of_distinct(lambda one: hashlib.new(name, one).hexdigest(), pa.string(), data)


def sha2(data: pa.Array, bits: pa.Array) -> pa.Array:
    """Of another number of bits than there is one for: NULL."""
    return of_distinct(_sha2, pa.string(), data, bits)


def crc32(data: pa.Array) -> pa.Array:
    return of_distinct(binascii.crc32, INT64, data)


def base64(data: pa.Array) -> pa.Array:
    """In lines of 76 characters."""
    return of_distinct(_base64, pa.string(), data)


def hex_of_bytes(data: pa.Array) -> pa.Array:
    return of_distinct(lambda one: one.hex().upper(), pa.string(), data)


def hex_of_number(number: pa.Array) -> pa.Array:
    return of_distinct(lambda one: f"{one % 2**64:X}", pa.string(), number)


def unhex(text: pa.Array) -> pa.Array:
    """Of what is no hexadecimal digit: NULL."""
    return of_distinct(_unhex, pa.binary(), text)


def bytes_of_hex(text: pa.Array) -> pa.Array:
    """`to_binary` of hexadecimal digits."""
    return of_distinct(_bytes_of_hex, pa.binary(), text)


def encode(text: pa.Array, charset: str) -> pa.Array:
    """``charset``: Python's name."""
    return of_distinct(partial(_encoded, charset), pa.binary(), text)


def decode(data: pa.Array, charset: str) -> pa.Array:
    return of_distinct(partial(_decoded, charset), pa.string(), data)


def is_utf8(data: pa.Array) -> pa.Array:
    return of_distinct(_is_utf8, pa.bool_(), data)


def made_utf8(data: pa.Array) -> pa.Array:
    """Bytes that are no UTF-8 become U+FFFD."""
    return of_distinct(lambda one: one.decode("utf-8", "replace"), pa.string(), data)


def validated_utf8(data: pa.Array) -> pa.Array:
    wrong = Wrong("INVALID_UTF8_STRING", "bytes are not UTF-8")
    return of_distinct(lambda one: one.decode() if _is_utf8(one) else wrong, pa.string(), data)


def url_encode(text: pa.Array) -> pa.Array:
    return of_distinct(_url_encoded, pa.string(), text)


def url_decode(text: pa.Array) -> pa.Array:
    return of_distinct(_url_decoded, pa.string(), text)


def hashed(*values: Any) -> pa.Array:
    """`hash`: Murmur3 of 32 bits, as Spark's."""
    return _chained(_MURMUR, np.uint32, values)


def hashed_wide(*values: Any) -> pa.Array:
    """`xxhash64`."""
    return _chained(_XX, np.uint64, values)


def _sha2(data: bytes, bits: int) -> str | None:
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return None if name is None else hashlib.new(name, data).hexdigest()


def _base64(data: bytes) -> str:
    text = base64_.b64encode(data).decode()
    return "\r\n".join(text[n : n + 76] for n in range(0, len(text), 76))


_HEX = frozenset("0123456789abcdefABCDEF")


def _unhex(text: str) -> bytes | None:
    return bytes.fromhex("0" * (len(text) % 2) + text) if _HEX.issuperset(text) else None


def _bytes_of_hex(text: str) -> bytes | Wrong:
    data = _unhex(text)
    return Wrong("CONVERSION_INVALID_INPUT", "a text is not a hexadecimal number") if data is None else data


_MALFORMED = Wrong("MALFORMED_CHARACTER_CODING", "what the character set does not have")


def _encoded(charset: str, text: str) -> bytes | Wrong:
    if charset == "utf-16" and text:  # Java's is big-endian, with a mark
        return b"\xfe\xff" + text.encode("utf-16-be")
    try:
        return text.encode(charset) if charset != "utf-16" else b""
    except UnicodeEncodeError:
        return _MALFORMED


def _decoded(charset: str, data: bytes) -> str | Wrong:
    try:
        return data.decode(charset)
    except UnicodeDecodeError:
        return _MALFORMED


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


_KEPT = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-*_")
_URL = {byte: chr(byte) if byte in _KEPT else "+" if byte == 0x20 else f"%{byte:02X}" for byte in range(256)}


def _url_encoded(text: str) -> str:
    return "".join(map(_URL.__getitem__, text.encode()))


def _digit(character: str) -> int:
    """As Java's `Character.digit` to base 16; -1: it is none."""
    if character in _HEX:
        return int(character, 16)
    if character.isdecimal() and character <= "\uffff":
        return int(character)
    wide = ord(character) - 0xFEE0  # full width
    return int(chr(wide), 16) if 0x20 < wide < 0x7F and chr(wide) in _HEX else -1


def _url_decoded(text: str) -> str | Wrong:
    wrong = Wrong("CANNOT_DECODE_URL", "a text is not an encoded URL")
    decoded: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "%":
            decoded.append(" " if text[at] == "+" else text[at])
            at += 1
            continue
        data = bytearray()
        while at + 2 < len(text) and text[at] == "%":
            high, low = text[at + 1], _digit(text[at + 2])
            value = 0 if high == "+" else _digit(high)
            if low < 0 or value < 0:
                return wrong
            data.append(value * 16 + low)
            at += 3
        if at < len(text) and text[at] == "%":
            return wrong
        decoded.append(data.decode("utf-8", "replace"))
    return "".join(decoded)


def _chained(
    functions: tuple[Callable[..., Words], Callable[..., Words], Callable[..., Words]], word: Any, values: Any
) -> pa.Array:
    """Each value's hash is the seed of the next; NULL leaves it. ``values``: arrays, then their kinds."""
    arrays, kinds = values[: len(values) // 2], values[len(values) // 2 :]
    of_int, of_long, of_bytes = functions
    state = np.full(len(arrays[0]), 42, dtype=word)
    with np.errstate(over="ignore"):
        for array, kind in zip(arrays, kinds, strict=True):
            if kind == "bytes":
                hashes = _bytes_hashed(array, state, of_bytes)
            elif kind == "long":
                hashes = of_long(_integers(array), state)
            else:
                hashes = of_int(_integers(array), state)
            state = np.where(array.is_valid().to_numpy(zero_copy_only=False), hashes, state)
    return pa.array(state.view(np.int32 if word is np.uint32 else np.int64))


def _integers(array: pa.Array) -> Raw:
    values = raw(array)
    if values.dtype.kind == "f":
        values = values + 0.0 * 0  # a copy
        values = np.where(
            values == 0, values.dtype.type(0), np.where(np.isnan(values), values.dtype.type("nan"), values)
        )
        return values.view(np.int64 if values.dtype.itemsize == 8 else np.int32).astype(np.int64)
    if pa.types.is_decimal(array.type):
        return np.frombuffer(array.buffers()[1], np.int64)[::2][array.offset : array.offset + len(array)]
    return values.astype(np.int64)


def _bytes_hashed(array: pa.Array, state: Words, of_bytes: Callable[..., Words]) -> Words:
    if not len(array):
        return state
    bounds_type = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    bounds = np.frombuffer(array.buffers()[1], bounds_type)[array.offset :][: len(array) + 1].astype(np.int64)
    first, last = int(bounds[0]), int(bounds[-1])
    data = (
        bytes(8)
        if array.buffers()[2] is None
        else array.buffers()[2].slice(first, last - first).to_pybytes() + bytes(8)
    )
    return of_bytes(data, bounds[:-1] - first, np.diff(bounds), state)


def _rotated(words: Words, by: int) -> Words:
    bits = words.dtype.itemsize * 8
    kind = words.dtype.type
    rotated: Words = (words << kind(by)) | (words >> kind(bits - by))
    return rotated


def _murmur_mixed(state: Words, word: Words) -> Words:
    word = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(state ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _murmur_finished(state: Words, length: Words | int) -> Words:
    state = state ^ np.uint32(length) if isinstance(length, int) else state ^ length.astype(np.uint32)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    mixed: Words = state ^ (state >> np.uint32(16))
    return mixed


def _murmur_int(values: Raw, state: Words) -> Words:
    return _murmur_finished(_murmur_mixed(state, values.astype(np.uint32)), 4)


def _murmur_long(values: Raw, state: Words) -> Words:
    wide = values.view(np.uint64) if values.dtype == np.int64 else values.astype(np.uint64)
    low, high = wide.astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)
    return _murmur_finished(_murmur_mixed(_murmur_mixed(state, low), high), 8)


def _murmur_bytes(data: bytes, starts: Raw, lengths: Raw, state: Words) -> Words:
    """Words of four bytes, then bytes with their signs, one by one."""
    words = np.ndarray((len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    single = np.frombuffer(data, np.int8)
    state = state.copy()
    whole = lengths - lengths % 4
    done, active = 0, np.flatnonzero(whole > 0)
    while len(active):
        state[active] = _murmur_mixed(state[active], words[starts[active] + done])
        done += 4
        active = active[whole[active] > done]
    for n in range(3):
        active = np.flatnonzero(whole + n < lengths)
        own = single[starts[active] + whole[active] + n].astype(np.int64).astype(np.uint32)
        state[active] = _murmur_mixed(state[active], own)
    return _murmur_finished(state, lengths)


_MURMUR = (_murmur_int, _murmur_long, _murmur_bytes)
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(constant)
    for constant in (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
    )
)  # fmt: skip


def _xx_finished(state: Words) -> Words:
    state = (state ^ (state >> np.uint64(33))) * _P2
    state = (state ^ (state >> np.uint64(29))) * _P3
    mixed: Words = state ^ (state >> np.uint64(32))
    return mixed


def _xx_four(state: Words, word: Words) -> Words:
    mixed: Words = _rotated(state ^ (word * _P1), 23) * _P2 + _P3
    return mixed


def _xx_eight(state: Words, word: Words) -> Words:
    mixed: Words = _rotated(state ^ (_rotated(word * _P2, 31) * _P1), 27) * _P1 + _P4
    return mixed


def _xx_int(values: Raw, state: Words) -> Words:
    word = values.astype(np.uint32).astype(np.uint64)
    return _xx_finished(_xx_four(state + _P5 + np.uint64(4), word))


def _xx_long(values: Raw, state: Words) -> Words:
    return _xx_finished(_xx_eight(state + _P5 + np.uint64(8), values.astype(np.int64).view(np.uint64)))


def _xx_bytes(data: bytes, starts: Raw, lengths: Raw, seed: Words) -> Words:
    """Stripes of 32 bytes, then words of eight and four bytes, then bytes."""
    eight = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
    four = np.ndarray((len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    single = np.frombuffer(data, np.uint8)
    striped = lengths - lengths % 32
    lanes = [seed + _P1 + _P2, seed + _P2, seed.copy(), seed - _P1]
    done, active = 0, np.flatnonzero(striped > 0)
    while len(active):
        for n, lane in enumerate(lanes):
            word = eight[starts[active] + done + 8 * n]
            lane[active] = _rotated(lane[active] + word * _P2, 31) * _P1
        done += 32
        active = active[striped[active] > done]
    merged = _rotated(lanes[0], 1) + _rotated(lanes[1], 7) + _rotated(lanes[2], 12) + _rotated(lanes[3], 18)
    for lane in lanes:
        merged = (merged ^ (_rotated(lane * _P2, 31) * _P1)) * _P1 + _P4
    state = np.where(lengths >= 32, merged, seed + _P5) + lengths.astype(np.uint64)
    at = striped.copy()
    for _ in range(3):
        active = np.flatnonzero(at + 8 <= lengths)
        state[active] = _xx_eight(state[active], eight[starts[active] + at[active]])
        at[active] += 8
    active = np.flatnonzero(at + 4 <= lengths)
    state[active] = _xx_four(state[active], four[starts[active] + at[active]].astype(np.uint64))
    at[active] += 4
    for _ in range(3):
        active = np.flatnonzero(at < lengths)
        own = single[starts[active] + at[active]].astype(np.uint64)
        state[active] = _rotated(state[active] ^ (own * _P5), 11) * _P1
        at[active] += 1
    return _xx_finished(state)


_XX = (_xx_int, _xx_long, _xx_bytes)
