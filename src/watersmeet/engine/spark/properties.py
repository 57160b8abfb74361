"""What tasks are told per tick, as local properties of Spark's jobs: text, sent along with every task.

A closure that stays the same is pickled and analysed once; a frame over it is planned from the same tree in
every tick.
"""

from __future__ import annotations

import base64
import pickle
import zlib

START = "watersmeet.start"
NODE = "watersmeet.node"


def packed(value: object) -> str:
    """``value`` as text."""
    return base64.b85encode(zlib.compress(pickle.dumps(value, protocol=5), 1)).decode()


def unpacked(text: str) -> object:
    """The value that `packed` made ``text`` of."""
    return pickle.loads(zlib.decompress(base64.b85decode(text)))
