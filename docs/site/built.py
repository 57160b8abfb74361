"""Looks at the site that was built: links and anchors lead somewhere, nothing comes from elsewhere."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}
FETCHED_LINKS = {"stylesheet", "icon", "preload", "preconnect", "modulepreload", "dns-prefetch"}
LOADED_BY_THE_THEME = ("mermaid", "glightbox")
"""Classes for which the theme's script fetches another one from a content network."""


class Page(HTMLParser):
    """What a page names: its anchors, links that readers follow, and what browsers fetch unasked."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.anchors |= {named[name] for name in ("id", "name") if name in named}
        self.classes |= set(named.get("class", "").split())
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        elif tag in FETCHED and FETCHED[tag] in named:
            self.fetched.append(named[FETCHED[tag]])
        elif tag == "link" and FETCHED_LINKS & set(named.get("rel", "").split()):
            self.fetched.append(named["href"])


def problems(site: Path) -> list[str]:
    """What is wrong with the site in this folder, a line each."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site} has no pages"]
    for path, page in pages.items():
        name = path.relative_to(site.resolve()).as_posix()
        if name == "404.html":  # its links are from the root of wherever the site is
            continue
        found += [f"{name} fetches {each}" for each in page.fetched if urlsplit(each).netloc]
        found += [
            f"{name} has a {each}: fetched from elsewhere"
            for each in LOADED_BY_THE_THEME
            if each in page.classes
        ]
        for link in [*page.links, *page.fetched]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{name}: {link} leads nowhere")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name}: {link} has no such anchor")
    return found


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(bool(wrong))
