"""The settings of a run on which the rows of its ticks depend.

As in `plan.identity.settings` everything counts, but for what is listed here with its reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.metadata import PackageNotFoundError, version

import pyspark
from pyspark import SparkContext

from watersmeet.objects.settings import STORE_SETTINGS
from watersmeet.plan.identity.settings import settings_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.nodes import MatchPlan
from watersmeet.runtime.spark.configuration import context_settings
from watersmeet.spec.monitoring import TOKEN_FILE
from watersmeet.spec.secrets import HIDDEN, public_option

_PLACE = "where something is kept, or runs"
_LOOKS = "how a run is looked at"
_END = "when a run ends, not what a tick has"

OMITTED_RUN: Mapping[str, str] = {
    "checkpoint": _PLACE,
    **dict.fromkeys(STORE_SETTINGS, _PLACE),
    "master": _PLACE,
    "jars": _PLACE,
    "partitions": "which task makes a row is no part of it",
    "trigger": "when ticks come (of a generator also how many rows they have: there it counts)",
    "until_caught_up": _END,
    "finish": _END,
    "replace_newer_files": "what becomes of the parts of other ticks",
    "keep_ticks": "what is kept of earlier ticks",
    "file_reader": "rows are the same",
    "small_ticks": "rows are the same",
    "history": "what is kept of earlier ticks, for people",
    "metrics": _LOOKS,
    "ui": _LOOKS,
    TOKEN_FILE: _LOOKS,
    "log_format": _LOOKS,
    "change_queries": "which queries there are counts for itself",
}
"""Settings of a run -> why the rows of a tick do not depend on them."""

COUNTED_SPARK = ("spark.sql.", "spark.hadoop.")
"""All else of Spark is about resources, places, and logs."""

OMITTED_SPARK: Mapping[str, str] = {
    "spark.sql.streaming.": "when batches come and how they are remembered",
    "spark.sql.ui.": "for people",
    "spark.sql.warehouse.dir": _PLACE,
    "spark.sql.artifact.": _PLACE,
    "spark.sql.shuffle.partitions": "which task makes a row is no part of it",
    "spark.sql.adaptive.": "which task makes a row is no part of it",
    "spark.sql.files.": "how files are cut for tasks (it counts where an ASOF join asks them), and written",
    "spark.sql.execution.": "how rows travel",
    "spark.sql.catalogImplementation": "jobs use no catalog",
    "spark.hadoop.fs.file.impl": "ours, for speed",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "ours, for speed",
}
"""Settings of Spark, or how their names begin -> why the rows of a tick do not depend on them."""


_CUTS_FILES = "spark.sql.files."
_CORES = "cores"


def list_settings(
    plan: JobPlan, run: Mapping[str, str], spark: SparkContext, secrets: Collection[str] = ()
) -> dict[str, str]:
    """Return the settings by name, as text for users.

    Args:
        run: the settings of the run, from the job or its flags.
        spark: has the session's whole configuration.
        secrets: names of Spark settings whose values are secrets, whatever their names suggest.
    """
    is_asked = needs_file_order(plan)
    omitted = tuple(name for name in OMITTED_SPARK if not (is_asked and name == _CUTS_FILES))
    settings = settings_of(plan)
    generated = any(source.traits.own_rate for source in plan.sources)
    for name, value in run.items():
        if name not in OMITTED_RUN or (name == "trigger" and generated):
            settings[name] = value
    for name, value in context_settings(spark).items():
        if name.startswith(COUNTED_SPARK) and not name.startswith(omitted):
            settings[name] = HIDDEN if name in secrets else str(public_option(name, value))
    if is_asked:
        settings[_CORES] = str(spark.defaultParallelism)
    try:
        settings["version of watersmeet"] = version("watersmeet")
    except PackageNotFoundError:  # it runs from a source tree
        settings["version of watersmeet"] = "none"
    settings["version of Spark"] = pyspark.__version__
    return settings


def needs_file_order(plan: JobPlan) -> bool:
    """Return True if results depend on the order of a tick's rows from files.

    The order depends on how Spark splits files: by their sizes and the number of tasks, with the
    largest
    splits first.
    """
    return any(
        branch.source.traits.files
        for query in plan.queries
        for join in query.every(MatchPlan)
        if join.asof is not None and join.right.in_order
        for _, branch in join.right.sources
    )
