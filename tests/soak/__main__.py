"""``python -m tests.soak``: a job from Kafka into PostgreSQL and Delta for half an hour, while all that it
lives on is killed; at the end its tables have to be the batch answer over all that was sent.

    --minutes N  how long (30); below 3 minutes nothing that the job holds is judged
    --seed N     of what is sent, and of what is done to it when
    --rows N     to each of the two topics, in a second (200)
    --folder DIR of all that it writes, which then stays
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from tests.soak.whole import soak

parser = argparse.ArgumentParser(prog="python -m tests.soak")
parser.add_argument("--minutes", type=float, default=30.0)
parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
parser.add_argument("--rows", type=int, default=200)
parser.add_argument("--folder", type=Path)
asked = parser.parse_args()
if asked.folder is not None:
    asked.folder.mkdir(parents=True)
with (
    nullcontext(asked.folder)
    if asked.folder
    else tempfile.TemporaryDirectory(prefix="watersmeet-soak-") as at
):
    result = soak(Path(at), asked.minutes, asked.seed, asked.rows)
    sys.exit(int(bool(result.wrong)))
