"""Digests and codes of texts and bytes."""

from __future__ import annotations

import base64 as base64_
import binascii
import hashlib
from functools import partial

import pyarrow as pa

from watersmeet.kernel.expressions.functions.base import (
    INT64,
    Wrong,
    of_distinct,
)


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
