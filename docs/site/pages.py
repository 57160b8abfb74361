"""The pages as the site has them: gathered from the repository, with links that hold there, and in the order
of navigation.toml.

On a code host the pages are read where they lie: README.md at the root, the others in docs/. A site has one
folder, so links that leave docs/ are written anew. A link to what is no page of the site is an error, and all
of them are said together.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
AT_THE_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
}
"""Pages that lie outside of docs/, and where the site has them."""

BESIDE = {".svg", ".png", ".sql", ".toml", ".css"}
"""What pages in docs/ show or offer, and is copied as it is."""

LINK = re.compile(r"(?P<head>!?\[[^\]]*\]\()(?P<target>[^)\s]+)(?P<tail>\))")
BLOCK = re.compile(r"^(```.*?^```)", re.DOTALL | re.MULTILINE)


def places(root: Path) -> dict[str, str]:
    """Path in the repository -> path in the site, of every page and of what lies beside them."""
    found = {name: place for name, place in AT_THE_ROOT.items() if (root / name).exists()}
    for path in sorted((root / "docs").rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not name.startswith("docs/site/") and path.suffix in {".md", *BESIDE}:
            found[name] = name.removeprefix("docs/")
    return found


def relinked(text: str, name: str, where: dict[str, str]) -> tuple[str, list[str]]:
    """A page's text with the links of the site, and those that lead nowhere in it."""
    lost: list[str] = []

    def anew(link: re.Match[str]) -> str:
        path, _, anchor = link["target"].partition("#")
        if not path or "://" in link["target"]:
            return link.group()
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        if meant not in where:
            lost.append(f"{name}: {link['target']}")
            return link.group()
        place = posixpath.relpath(where[meant], posixpath.dirname(where[name]) or ".")
        return f"{link['head']}{place}{'#' * bool(anchor)}{anchor}{link['tail']}"

    parts = BLOCK.split(text)  # blocks of code are at odd places
    return "".join(part if n % 2 else LINK.sub(anew, part) for n, part in enumerate(parts)), lost


def navigation(pages: Iterable[str], sections: list[dict]) -> list[tuple[str, list[str]]]:
    """Titles, and the pages beneath each; every page once, empty sections not at all."""
    left = sorted(pages)
    found = []
    for section in sections:
        here = []
        for pattern in section["pages"]:
            taken = [
                page for page in left if fnmatchcase(page, pattern) and page.count("/") == pattern.count("/")
            ]
            here += taken
            left = [page for page in left if page not in taken]
        if here:
            found.append((section["title"], here))
    if left:
        raise ValueError(f"navigation.toml has no line for {', '.join(left)}")
    return found


def configuration(pages: Iterable[str]) -> str:
    """zensical.toml with the navigation in it."""
    sections = tomllib.loads((HERE / "navigation.toml").read_text())["section"]
    lines = ["nav = ["]
    for title, here in navigation(pages, sections):
        listed = ", ".join(f'"{page}"' for page in here)
        lines.append(f'  {{ "{title}" = [{listed}] }},')
    text = (HERE / "zensical.toml").read_text()
    return text.replace("[project]\n", "[project]\n" + "\n".join([*lines, "]", ""]), 1)


def gather(root: Path, into: Path) -> list[str]:
    """Makes the pages and zensical.toml anew in this folder; gives the links that lead nowhere."""
    shutil.rmtree(into / "pages", ignore_errors=True)
    where = places(root)
    problems: list[str] = []
    for name, place in where.items():
        target = into / "pages" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if name == "LICENSE":
            target.write_text(f"# License\n\n```text\n{(root / name).read_text()}```\n")
        elif target.suffix == ".md":
            text, lost = relinked((root / name).read_text(), name, where)
            problems += lost
            target.write_text(text)
        else:
            shutil.copyfile(root / name, target)
    pages = [place for place in where.values() if place.endswith(".md")]
    (into / "zensical.toml").write_text(configuration(pages))
    return problems


if __name__ == "__main__":
    problems = gather(ROOT, ROOT / "build")
    for problem in problems:
        print(f"leads to no page of the site: {problem}", file=sys.stderr)
    sys.exit(bool(problems))
