"""The upgrade page lists the kinds of changes of a query with the decisions that the code makes."""

import re

from tests.support.package_paths import REPOSITORY
from watersmeet.plan.query_evolution import ChangeKind

PAGE = REPOSITORY / "docs" / "users" / "guides" / "upgrade.md"


def test_the_upgrade_page_has_all_kinds_of_changes():
    text = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", PAGE.read_text())
    rows = {f"| {kind.what} | {' | '.join(kind.decision.value)} |" for kind in ChangeKind}
    assert rows <= set(text.splitlines())
