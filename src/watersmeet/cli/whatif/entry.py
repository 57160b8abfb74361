"""Define the command ``whatif``; the command line imports this, so it imports nothing heavy."""

from __future__ import annotations

from typing import Annotated

import typer

from watersmeet.cli import flags
from watersmeet.cli.job_file import text_of


def whatif(
    job: flags.JobFile,
    sample: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE=FILES", help="Files with rows of a stream in arrival order; repeatable."
        ),
    ] = None,
    arrival: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE=COLUMN", help="Column with a row's arrival time; repeatable."),
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE=COLUMN", help="Column with a row's partition; repeatable."),
    ] = None,
    lag: Annotated[
        list[str] | None,
        typer.Option(help="Lag to try: '10 seconds', or 'orders=10 seconds, payments=1 minute'; repeatable."),
    ] = None,
    interval: Annotated[
        list[str] | None, typer.Option(help="Factor for the joins' time bounds, such as 0.5; repeatable.")
    ] = None,
    idle: Annotated[
        list[str] | None, typer.Option(help="Idle timeout to try: '5 minutes', or none; repeatable.")
    ] = None,
    late_share: Annotated[
        str | None, typer.Option(help="Suggest the smallest lags with at most this share of late rows: 0.1%.")
    ] = None,
    rows_per_tick: Annotated[
        int | None, typer.Option(min=1, help="Rows per tick (default: a thousandth of the sample).")
    ] = None,
    tick: Annotated[str | None, typer.Option(help="Length of a tick by arrival time: '2 seconds'.")] = None,
    matches: Annotated[
        bool, typer.Option("--matches/--no-matches", help="Count the matches that late rows would have had.")
    ] = True,
    lateness: flags.By = None,
    allowed_lateness: flags.Lateness = None,
    plan: flags.Plan = None,
    time_zone: flags.TimeZone = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Plot late rows against rows in state: .png, .svg or .pdf."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON line per setting, and one for all.")
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV: one line per setting, query and input.")
    ] = False,
) -> None:
    """Try other lags, time bounds and idle timeouts on a sample: late rows against rows in state."""
    from watersmeet.cli.whatif.command import whatif_text
    from watersmeet.cli.whatif.options import WhatifFlags

    given = {
        "lateness": lateness,
        "allowed_lateness": allowed_lateness,
        "plan": plan,
        "time_zone": time_zone,
    }
    overrides = {name: value for name, value in given.items() if value is not None}
    words = WhatifFlags(
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
