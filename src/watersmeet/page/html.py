"""The page as one file: the document, and all that draws it. It asks nobody for anything.

What is from users or from data is in the document alone, as JSON, which no browser runs; the script makes
text of it, never markup. The page's own policy lets nothing else in: scripts and style by their digests, and
no connections.
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from string import Template

from watersmeet.errors import printable
from watersmeet.page.document import Document

_STATIC = files("watersmeet.page") / "static"
STYLES = ("page.css",)
SCRIPTS = ("words.js", "charts.js", "plan.js", "why.js", "page.js")
"""In the order in which a page has them."""


def page_of(document: Document) -> str:
    """Render a document as a self-contained page in HTML, UTF-8."""
    scripts = [_text(name) for name in SCRIPTS]
    style = "".join(_text(name) for name in STYLES)
    digests = " ".join(_digest(script) for script in scripts)
    policy = f"default-src 'none'; style-src {_digest(style)}; script-src {digests}"
    return _page(
        str(document["title"]),
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>',
        f'<script type="application/json" id="document">{_embedded(document)}</script>\n'
        + "\n".join(f"<script>{script}</script>" for script in scripts),
    )


def served_page(title: str) -> str:
    """Render a page that loads its scripts, style and document from its server, as HTML, UTF-8."""
    styles = [f'<link rel="stylesheet" href="{name}">' for name in STYLES]
    scripts = [f'<script src="{name}"></script>' for name in SCRIPTS]
    return _page(title, "\n".join(['<link rel="icon" href="data:,">', *styles]), "\n".join(scripts))


def _page(title: str, head: str, scripts: str) -> str:
    """Render the page's frame; ``head`` and ``scripts`` are markup."""
    frame = Template(_text("page.html"))
    return frame.substitute(title=escape(printable(title)), head=head, scripts=scripts)


def static(name: str) -> bytes:
    """Read a static file of the page.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return (_STATIC / name).read_bytes()


def _text(name: str) -> str:
    return static(name).decode().strip()


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _embedded(document: Document) -> str:
    """Encode a document as JSON that cannot end its HTML element or begin a comment in it."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
