"""A directory of parts in a world: what the sink of files asks of `shutil`, file by file."""

from __future__ import annotations

import os
import shutil
from typing import Any

from tests.simulation.world import World


class SimulatedFiles:
    """In the place of the module ``shutil``."""

    @staticmethod
    def rmtree(folder: Any, ignore_errors: bool = False) -> None:
        """File by file, and the process may be killed in between."""
        world = World.current
        if world is None or world.fiber is None:
            shutil.rmtree(folder, ignore_errors=ignore_errors)
            return
        for above, _, names in os.walk(folder, topdown=False):
            for name in sorted(names):
                world.point("before rmtree removes a file")
                try:
                    os.unlink(os.path.join(above, name))
                except OSError:
                    continue
        world.point("before rmtree removes a folder")
        shutil.rmtree(folder, ignore_errors=True)
