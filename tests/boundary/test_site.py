"""The site is made of the pages as they lie in the repository: links hold, and every page has its place."""

from __future__ import annotations

import importlib
import re
import tomllib

import pytest

from docs.site import built, pages
from docs.site.pictures import FOLDER, PICTURES
from tests.support.package_paths import REPOSITORY as ROOT
from tests.support.package_paths import find_paths

SECTIONS = tomllib.loads((ROOT / "docs/site/navigation.toml").read_text())["section"]


def test_every_page_of_the_repository_has_its_place_and_every_place_its_page(tmp_path):
    assert pages.gather(ROOT, tmp_path) == []
    assert find_paths(tmp_path / "pages", *(page for section in SECTIONS for page in section["pages"]))
    made = {path.relative_to(tmp_path / "pages").as_posix() for path in (tmp_path / "pages").rglob("*.md")}
    there = {path.relative_to(ROOT / "docs").as_posix() for path in find_paths(ROOT, "docs/**/*.md")}
    assert made == there | {"index.md", "contributing.md", "security.md", "changelog.md", "license.md"}
    nav = tomllib.loads((tmp_path / "zensical.toml").read_text())
    listed = [page for section in nav["project"]["nav"] for here in section.values() for page in here]
    assert sorted(listed) == sorted(made)


@pytest.mark.parametrize(
    ("name", "link", "found"),
    [
        ("README.md", "docs/a.md#b", "a.md#b"),
        ("README.md", "CONTRIBUTING.md", "contributing.md"),
        ("docs/a.md", "../README.md", "index.md"),
        ("docs/from/b.md", "../a.md", "../a.md"),
        ("docs/from/b.md", "../../README.md#c", "../index.md#c"),
        ("docs/a.md", "from/b.md", "from/b.md"),
        ("docs/a.md", "#c", "#c"),
        ("docs/a.md", "https://www.apache.org/x", "https://www.apache.org/x"),
    ],
)
def test_links_are_those_of_the_site(name, link, found):
    where = {
        "README.md": "index.md",
        "CONTRIBUTING.md": "contributing.md",
        "docs/a.md": "a.md",
        "docs/from/b.md": "from/b.md",
    }
    assert pages.relinked(f"see [x]({link})", name, where) == (f"see [x]({found})", [])
    block = f"```text\n[x]({link})\n```\n"
    assert pages.relinked(block, name, where)[0] == block


def test_link_to_a_file_outside_the_pages_is_reported():
    assert pages.relinked("[x](../src/a.py)", "docs/a.md", {"docs/a.md": "a.md"})[1] == [
        "docs/a.md: ../src/a.py"
    ]


def test_pages_come_and_go_without_the_navigation():
    sections = [
        {"title": "One", "pages": ["b.md", "not-there.md", "from/*.md"]},
        {"title": "None", "pages": ["nor-this.md"]},
        {"title": "More", "pages": ["*.md"]},
    ]
    assert pages.navigation(["a.md", "b.md", "from/c.md"], sections) == [
        ("One", ["b.md", "from/c.md"]),
        ("More", ["a.md"]),
    ]
    with pytest.raises(ValueError, match=r"no line for from/c\.md"):
        pages.navigation(["from/c.md"], sections[1:])


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="b.html#there">b</a>', None),
        ('<a href="b.html#gone">b</a>', "a.html: b.html#gone has no such anchor"),
        ('<a href="c.html">c</a>', "a.html: c.html leads nowhere"),
        ('<a href="https://www.apache.org">elsewhere</a>', None),
        ('<script src="https://cdn.example/x.js"></script>', "a.html fetches https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', "a.html fetches //cdn.example/x.css"),
        ('<pre class="mermaid">a</pre>', "a.html has a mermaid: fetched from elsewhere"),
    ],
)
def test_the_built_site_is_looked_at(tmp_path, body, problem):
    (tmp_path / "a.html").write_text(f"<body>{body}</body>")
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1>')
    assert built.problems(tmp_path) == ([] if problem is None else [problem])


def test_the_reference_names_every_public_name_once():
    page = (ROOT / "docs/users/reference/python.md").read_text()
    named = re.findall(r"^::: (watersmeet[\w.]*)$", page, re.MULTILINE)
    assert len(named) == len(set(named))
    found = [
        getattr(importlib.import_module(door), name) for door, _, name in (n.rpartition(".") for n in named)
    ]
    doors = ("watersmeet", "watersmeet.local", "watersmeet.testing", "watersmeet.pipelines")
    for door in doors:
        module = importlib.import_module(door)
        for name in set(module.__all__) - {"__version__", "local", "pipelines"}:
            assert any(getattr(module, name) is each for each in found), f"{door}.{name}"
    assert len({id(each) for each in found}) == len(found)


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_show_what_the_engine_does_now(name):
    """Else draw them anew (``python -m docs.site.pictures``), and look at them."""
    assert (FOLDER / f"{name}.svg").read_text() == PICTURES[name]()


def test_every_picture_is_drawn_and_shown():
    assert {path.stem for path in FOLDER.glob("*.svg")} == set(PICTURES)
    shown = (ROOT / "docs/users/concepts.md").read_text()
    assert all(f"](../pictures/{name}.svg)" in shown for name in PICTURES)


def test_the_ten_questions_are_two_clicks_from_the_first_page():
    """The first page leads to the list, each line of which has a thread, and a place that answers it; that
    there is such a place `test_docs` tells."""
    assert "](docs/users/faq.md)" in (ROOT / "README.md").read_text()
    page = (ROOT / "docs/users/faq.md").read_text()
    rows = re.findall(r"^\| (?!question|---)(.+) \| (.+) \| (.+) \| (.+) \|$", page, re.M)
    assert len(rows) == 10
    for question, here, asked, answered in rows:
        assert question.endswith("?"), question
        assert here
        assert re.fullmatch(
            r"\[(Spark|Flink|RisingWave), 20\d\d\]\(https://github\.com/[\w./-]+/\d+\)", asked
        )
        assert re.fullmatch(r"\[.+\]\([\w/-]+\.md(#[\w-]+)?\)", answered)
    assert {asked[1:6] for _, _, asked, _ in rows} == {"Spark", "Flink", "Risin"}
