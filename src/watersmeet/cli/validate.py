"""`validate` and `schema`: pipelines are looked at, and nothing is started."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from watersmeet.cli.job_file import first_message, is_pipeline, text_of, warnings_of
from watersmeet.cli.output import to_stderr
from watersmeet.errors import SpecError, near_names

SCHEMAS = ("pipeline",)


def validate_file(path: Path, overrides: Mapping[str, str]) -> None:
    """Print what is to be known of a pipeline.

    Raises:
        WatersmeetError: all that is wrong with it, with file, line and key.
    """
    name = str(path)
    if not is_pipeline(name):
        raise SpecError(
            f'"{name}" is not a pipeline, whose file name ends in .toml',
            code="wrong-option",
            hint=f"watersmeet explain {name} shows what is wrong with a job of SQL",
        )
    from watersmeet.pipelines.file import job_of
    from watersmeet.runtime.spark.job.column_inference import ColumnInference

    text = text_of(path)
    pipeline, job = job_of(text, name, overrides, ColumnInference(say=to_stderr))
    first = first_message(text, name, overrides)
    if first is not None:
        print(f"note: {first}")
    for warning in warnings_of(text, name, job.plan):
        print(f"warning: {warning}", file=sys.stderr)
    (query,) = job.plan.queries
    columns = ", ".join(output.name for output in query.outputs)
    print(f"{name}: {pipeline.name} is a pipeline that can be run; it puts out {columns}")


def schema_text(of: str) -> str:
    """Return a JSON schema as text.

    Args:
        of: One of `SCHEMAS`.

    Raises:
        SpecError: No JSON schema exists for ``of``.
    """
    if of not in SCHEMAS:
        hint = near_names(of, SCHEMAS)
        raise SpecError(f'no JSON schema exists for "{of}"', code="wrong-option", hint=hint)
    from watersmeet.pipelines.model import json_schema

    return json.dumps(json_schema(), indent=2, ensure_ascii=False)
