"""What several laws need."""

from __future__ import annotations

import pytest

from watersmeet.runtime.coordinator import merge_policy


@pytest.fixture
def merge_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are merged as soon as there are two."""
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
