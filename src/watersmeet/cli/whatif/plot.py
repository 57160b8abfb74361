"""Late rows against what is retained, setting by setting, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from watersmeet.errors import SpecError
from watersmeet.plan.explain.wording import distance
from watersmeet.whatif.lags import EventStream
from watersmeet.whatif.trial import OfQuery, TrialOutcome

if TYPE_CHECKING:
    from watersmeet.cli.whatif.command import Suggestion

_PLOT_WIDTH, _HEIGHT = 8.0, 4.5


def plot(
    path: str,
    outcomes: Sequence[TrialOutcome],
    suggestion: Suggestion | None,
    streams: Mapping[str, EventStream],
) -> None:
    """Draw one plot per query below each other, and write the picture to a file.

    Each plot has a line per interval and idle timeout, and a point per lag.

    Raises:
        SpecError: The file cannot be written.
    """
    from matplotlib.figure import Figure

    names = list(outcomes[0].queries)
    figure = Figure(figsize=(_PLOT_WIDTH, _HEIGHT * len(names)), layout="constrained")
    for name, axes in zip(names, figure.subplots(len(names), squeeze=False)[:, 0], strict=True):
        _draw(axes, name, outcomes, suggestion, streams)
    try:
        figure.savefig(path)
    except OSError as error:
        raise SpecError(
            f"--plot {path} cannot be written: {error.strerror or error}", code="not-written"
        ) from None


def _draw(
    axes: Any,
    name: str,
    outcomes: Sequence[TrialOutcome],
    suggestion: Suggestion | None,
    streams: Mapping[str, EventStream],
) -> None:
    lines: dict[str, list[TrialOutcome]] = {}
    for outcome in outcomes:
        lines.setdefault(_line(outcome), []).append(outcome)
    for label, points in lines.items():
        points = sorted(
            points, key=lambda own: (own.queries[name].average, -_max_late_share(own.queries[name]))
        )
        kept = [own.queries[name].average for own in points]
        late = [100 * _max_late_share(own.queries[name]) for own in points]
        axes.plot(kept, late, marker="o", label=label)
        for own, x, y in zip(points, kept, late, strict=True):
            axes.annotate(_lags(own, streams), (x, y), textcoords="offset points", xytext=(5, 5), fontsize=7)
    if suggestion is not None:
        suggested = suggestion.outcome.queries[name]
        late = [100 * _max_late_share(suggested)]
        axes.plot([suggested.average], late, marker="*", markersize=14, linestyle="", label="suggested")
        axes.axhline(100 * suggestion.share, linestyle=":", linewidth=1)
    axes.set_title(name)
    axes.set_xlabel("rows retained on average")
    axes.set_ylabel("late rows, % of the worst input")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.2)
    if len(lines) > 1 or suggestion is not None:
        axes.legend()


def _max_late_share(own: OfQuery) -> float:
    return max(given.late_share for given in own.inputs.values())


def _line(outcome: TrialOutcome) -> str:
    setting = outcome.setting
    words = [f"interval × {float(setting.scale):g}"]
    if not setting.keeps_idle:
        words.append("no idle timeout" if setting.idle is None else f"idle {distance(setting.idle, True)}")
    return ", ".join(words)


def _lags(outcome: TrialOutcome, streams: Mapping[str, EventStream]) -> str:
    return ", ".join(distance(lag, streams[name].in_time) for name, lag in outcome.lags.items())
