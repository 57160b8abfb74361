"""Rule: digests and codes of texts and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from watersmeet.plan.exact.rules import Rule, arguments
from watersmeet.plan.exact.texts import as_bytes, as_text, optional
from watersmeet.plan.exact.values import (
    Exact,
    NotExact,
    call,
    constant_value,
    or_null,
    widened,
)
from watersmeet.types.sql_type import (
    BIGINT,
    BINARY,
    BOOLEAN,
    INT,
    INTEGERS,
    SMALLINT,
    STRING,
    TINYINT,
    VOID,
    SqlType,
)

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler


def _of_bytes(function: str, type_: SqlType, *options: str) -> Rule:
    return arguments(1, lambda _, value: call(function, type_, as_bytes(value), options=options))


def _sha2(_: Compiler, data: Exact, bits: Exact) -> Exact:
    if bits.type not in (TINYINT, SMALLINT, INT, VOID):
        raise NotExact(f"{bits.type} as a number of bits")
    return call("sha2", STRING, as_bytes(data), widened(bits, INT))


def _hex(_: Compiler, value: Exact) -> Exact:
    if value.type in INTEGERS:
        return call("hex_of_number", STRING, widened(value, BIGINT))
    return call("hex_of_bytes", STRING, as_bytes(value))


_CHARSETS = {
    "UTF-8": "utf-8", "US-ASCII": "ascii", "ISO-8859-1": "latin-1", "UTF-16BE": "utf-16-be",
    "UTF-16LE": "utf-16-le", "UTF-16": "utf-16", "UTF-32": "utf-32-be",
}  # fmt: skip
"""Spark's names with Python's."""


def _charset(value: Exact, refused: Sequence[str] = ()) -> str:
    name = str(constant_value(value)).upper()
    if name not in _CHARSETS or name in refused:
        raise NotExact(f"the character set {name}")
    return _CHARSETS[name]


def _encode(compiler: Compiler, text: Exact, charset: Exact) -> Exact:
    return call("encode", BINARY, as_text(compiler, text), options=[_charset(charset)])


def _decode(_: Compiler, data: Exact, charset: Exact) -> Exact:
    if data.type != BINARY:
        raise NotExact(f"decode of {data.type}")
    return call("decode", STRING, data, options=[_charset(charset, ("UTF-16", "UTF-32"))])


def _to_binary(lenient: bool) -> Rule:
    def make(compiler: Compiler, text: Exact, format_: Exact | None = None) -> Exact:
        name = "hex" if format_ is None else str(constant_value(format_)).lower()
        own = as_text(compiler, text)
        if name in ("utf-8", "utf8"):
            return call("as_binary", BINARY, own)
        if name != "hex":
            raise NotExact(f"to_binary by {name}")
        decoded = call("bytes_of_hex", BINARY, own)
        return or_null(decoded) if lenient else decoded

    return optional(1, 2, make)


def _utf8(function: str, type_: SqlType, lenient: bool = False) -> Rule:
    def make(_: Compiler, value: Exact) -> Exact:
        encoded = call(function, type_, as_bytes(value))
        return or_null(encoded) if lenient else encoded

    return arguments(1, make)


def _url(function: str, lenient: bool = False) -> Rule:
    def make(compiler: Compiler, text: Exact) -> Exact:
        encoded = call(function, STRING, as_text(compiler, text))
        return or_null(encoded) if lenient else encoded

    return arguments(1, make)


FUNCTIONS: dict[str, Rule] = {
    "md5": _of_bytes("digest", STRING, "md5"),
    "sha": _of_bytes("digest", STRING, "sha1"), "sha1": _of_bytes("digest", STRING, "sha1"),
    "sha2": arguments(2, _sha2),
    "crc32": _of_bytes("crc32", BIGINT),
    "base64": _of_bytes("base64", STRING),
    "hex": arguments(1, _hex),
    "unhex": arguments(1, lambda compiler, text: call("unhex", BINARY, as_text(compiler, text))),
    "encode": arguments(2, _encode), "decode": arguments(2, _decode),
    "to_binary": _to_binary(False), "try_to_binary": _to_binary(True),
    "is_valid_utf8": _utf8("is_utf8", BOOLEAN), "make_valid_utf8": _utf8("made_utf8", STRING),
    "validate_utf8": _utf8("validated_utf8", STRING),
    "try_validate_utf8": _utf8("validated_utf8", STRING, lenient=True),
    "url_encode": _url("url_encode"), "url_decode": _url("url_decode"),
    "try_url_decode": _url("url_decode", lenient=True),
    "binary": arguments(1, lambda compiler, value: compiler.cast_to(value, BINARY)),
}  # fmt: skip

NOTES = {
    "encode": "a constant character set", "decode": "a constant character set other than UTF-16 and UTF-32",
    "to_binary": "hex and UTF-8", "try_to_binary": "hex and UTF-8",
}  # fmt: skip
