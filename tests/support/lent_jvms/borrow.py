"""What stands where PySpark starts ``spark-submit``: it borrows a JVM and is what PySpark sees of it. It ends
when its standard input does, and the JVM is then cleaned of what it did; where it is killed, too.

Run as a script of its own, by the interpreter alone.
"""

import json
import os
import select
import socket
import struct
import sys
from contextlib import suppress
from typing import Any

VARIABLES = ("LENT_JVMS_SOCKET", "LENT_JVMS_SPARK_HOME", "SPARK_HOME")


def main() -> int:
    place, home, _ = (os.environ[name] for name in VARIABLES)
    told = os.environ.pop("_PYSPARK_DRIVER_CONN_INFO_PATH")
    others = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    with suppress(ConnectionError, FileNotFoundError), socket.socket(socket.AF_UNIX) as lender:
        lender.connect(place)
        lender.sendall(json.dumps({"words": sys.argv[1:], "environment": others}).encode() + b"\n")
        answer, rest = _line(lender)
        if "port" in answer:
            _tell(told, answer["port"], answer["secret"].encode())
            return _serve(lender, rest)
    own = os.path.join(home, "bin", "spark-submit")
    os.execve(own, [own, *sys.argv[1:]], others | {"_PYSPARK_DRIVER_CONN_INFO_PATH": told})


def _line(lender: socket.socket) -> tuple[dict[str, Any], bytes]:
    text = b""
    while b"\n" not in text:
        piece = lender.recv(1 << 16)
        if not piece:
            return {}, b""
        text += piece
    line, _, rest = text.partition(b"\n")
    return json.loads(line), rest


def _tell(path: str, port: int, secret: bytes) -> None:
    """As Spark's PythonGatewayServer does: all of it, or no file."""
    with open(path + ".new", "wb") as file:
        file.write(struct.pack("!ii", port, len(secret)) + secret)
    os.rename(path + ".new", path)


def _serve(lender: socket.socket, words: bytes) -> int:
    """Pass on what the JVM says until one of both ends."""
    _say(words)
    watched: list[int | socket.socket] = [sys.stdin.fileno(), lender]
    while True:
        for ready in select.select(watched, [], [])[0]:
            if isinstance(ready, socket.socket):
                words = _receive_bytes(ready)
                if not words:
                    return 0 if len(watched) == 1 else 1  # the JVM went away
                _say(words)
            elif not os.read(ready, 1 << 16):
                watched.remove(ready)
                with suppress(OSError):
                    lender.shutdown(socket.SHUT_WR)


def _receive_bytes(lender: socket.socket) -> bytes:
    """Nothing, where the lender has gone."""
    try:
        return lender.recv(1 << 16)
    except ConnectionError:
        return b""


def _say(words: bytes) -> None:
    with suppress(OSError):
        os.write(2, words)


sys.exit(main())
