"""``python -m watersmeet``: the command, where none is installed on the PATH."""

from __future__ import annotations

import sys

from watersmeet.cli.start import main

if __name__ == "__main__":
    sys.exit(main())
