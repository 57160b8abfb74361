"""The flags of ``whatif``. Loaded with the command line: nothing heavy is, before it is asked for."""

from __future__ import annotations

from typing import Annotated

import typer

from watersmeet.cli import flags
from watersmeet.cli.job_file import text_of


def whatif(
    job: flags.JobFile,
    sample: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE=FILES", help="Rows of a stream, in the order they arrived; repeat."),
    ] = None,
    arrival: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE=COLUMN", help="The column that says when a row arrived; repeat."),
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE=COLUMN", help="The column that says in which partition; repeat."),
    ] = None,
    lag: Annotated[
        list[str] | None,
        typer.Option(help="Lags to try: '10 seconds', 'orders=10 seconds, payments=1 minute'; repeat."),
    ] = None,
    interval: Annotated[
        list[str] | None, typer.Option(help="A factor of the joins' distances of times: 0.5; repeat.")
    ] = None,
    idle: Annotated[
        list[str] | None, typer.Option(help="An idle timeout of all streams: '5 minutes', or none; repeat.")
    ] = None,
    late_share: Annotated[
        str | None, typer.Option(help="Suggest the least lags with no more late rows: 0.1%.")
    ] = None,
    rows_per_tick: Annotated[
        int | None, typer.Option(min=1, help="Rows of a tick (default: a thousandth of the sample).")
    ] = None,
    tick: Annotated[
        str | None, typer.Option(help="The length of a tick on the clock of arrival: '2 seconds'.")
    ] = None,
    matches: Annotated[
        bool, typer.Option("--matches/--no-matches", help="Count the matches that late rows lose.")
    ] = True,
    lateness: flags.By = None,
    allowed_lateness: flags.Lateness = None,
    plan: flags.Plan = None,
    time_zone: flags.TimeZone = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Late rows against kept ones: .png, .svg or .pdf.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON line per setting, and one of all.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="A line per setting, query and input.")] = False,
) -> None:
    """Try lags, intervals and idle timeouts on a sample: late rows against kept rows. Nothing is run."""
    from watersmeet.cli.whatif.command import whatif_text
    from watersmeet.cli.whatif.options import Words

    given = {
        "lateness": lateness,
        "allowed_lateness": allowed_lateness,
        "plan": plan,
        "time_zone": time_zone,
    }
    overrides = {name: value for name, value in given.items() if value is not None}
    words = Words(
        sample=sample or (),
        arrival=arrival or (),
        partition=partition or (),
        lag=lag or (),
        interval=interval or (),
        idle=idle or (),
        late_share=late_share,
        rows_per_tick=rows_per_tick,
        tick=tick,
        plot=plot,
    )
    whatif_text(text_of(job), str(job), overrides, words, matches=matches, as_json=json, as_csv=csv)
