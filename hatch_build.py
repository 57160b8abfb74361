"""Metadata of the package that stands elsewhere: its long description is README.md, whose links lead to the
project's address, which pyproject.toml names once."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?://|#)([^)]+)\)")
"""A link or a picture of Markdown that leads to a file of the repository."""


class ReadmeHook(MetadataHookInterface):
    """Set the long description and the URLs by ``address``."""

    def update(self, metadata: dict[str, Any]) -> None:
        address = str(self.config["address"])
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute_links(text, address)}
        metadata["urls"] = {
            "Repository": address,
            "Documentation": f"{address}/blob/main/README.md",
            "Changelog": f"{address}/blob/main/CHANGELOG.md",
        }


def absolute_links(text: str, address: str) -> str:
    """Return Markdown whose links to files of the repository lead to ``address``."""

    def absolute(link: re.Match[str]) -> str:
        picture, words, path = link.groups()
        return f"{picture}{words}({address}/{'raw' if picture else 'blob'}/main/{path})"

    return _LINK.sub(absolute, text)
