"""Rules about a query as a whole: updates in append mode, output names, idle inputs that follow."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.errors import PlanError
from watersmeet.names import CHANGE_COLUMNS, is_node_alias
from watersmeet.plan.checks.per_key import check_per_key_of_changes
from watersmeet.plan.checks.tables import in_python, read_as_of
from watersmeet.plan.join_inputs import JoinInputs, name_of
from watersmeet.plan.mode import changing
from watersmeet.plan.model.sides import joined_name
from watersmeet.plan.nodes.tree import Tree
from watersmeet.spec.model import OnIdle, Options, OutputColumn, OutputMode, Sink


def check_query(outputs: Sequence[OutputColumn], sink: Sink, options: Options, tree: Tree) -> list[PlanError]:
    """What is wrong with a query whatever it joins."""
    inputs = JoinInputs(tree.inputs, time_zone=options.time_zone)
    return [
        *_append(tree),
        *check_per_key_of_changes(options, tree),
        *_names(outputs, sink),
        *_our_names(outputs, options, inputs),
        *_follow(inputs),
        *_read_as_streams(inputs),
    ]


def _append(tree: Tree) -> list[PlanError]:
    """Where final rows are wanted, rows that may be taken back come to windows that close."""
    taken_back = [i for part in tree.every if not part.changes for i in changing(part.query.inputs)]
    if not taken_back:
        return []
    names = ", ".join(f'"{i.alias}"' + (" (a table)" if i.is_table else "") for i in taken_back)
    return [
        PlanError(
            f"EMIT FINAL is not possible: rows of {names} can be retracted, so no result is final",
            code="append-of-updates",
            hint="write EMIT CHANGES (output_mode changelog), which emits inserts and deletes"
            + _WINDOWS * any(i.event_times for i in taken_back),
        )
    ]


_WINDOWS = "; or group over windows, whose results are final when they close"


def _read_as_streams(inputs: JoinInputs) -> list[PlanError]:
    """Tables that are named like streams."""
    errors = []
    for i in inputs.in_order:
        source = next(
            (s for s in i.sources if (s.traits.snapshot or s.refresh_us is not None) and not s.compared), None
        )
        if source is None or i.as_of:
            continue
        why = "a table of a database" if source.traits.snapshot else "a table (option 'refresh')"
        errors.append(
            PlanError(
                f'"{source.name}" ({i.alias}) is {why}, which cannot be read as a stream',
                code="not-a-stream",
                hint=f"join it as of the arrival of each row: stream JOIN {read_as_of(i)} ON …;"
                f" {in_python(i)}",
            )
        )
    return errors


def _names(outputs: Sequence[OutputColumn], sink: Sink) -> list[PlanError]:
    if not sink.needs_unique_names or sink.columns is not None:
        return []
    named: dict[str, list[OutputColumn]] = {}
    for output in outputs:
        named.setdefault(output.name.lower(), []).append(output)
    return [
        PlanError(
            f'the sink "{sink.name}" needs unique names, but "{own[-1].name}" comes from'
            f" {' and '.join(output.origin for output in own)}",
            code="duplicate-column",
            hint=f"rename one of them: {own[-1].origin} AS {own[-1].name}_2",
        )
        for own in named.values()
        if len(own) > 1
    ]


def _our_names(outputs: Sequence[OutputColumn], options: Options, inputs: JoinInputs) -> list[PlanError]:
    """Names of users that would be taken for others."""
    errors = [
        PlanError(
            f'the alias "{i.alias}" is reserved: #1, #2, … are the names of joins',
            code="reserved-name",
            hint="use another alias",
        )
        for i in inputs.in_order
        if is_node_alias(i.alias)
    ]
    if options.output_mode is OutputMode.CHANGELOG:
        errors += [
            PlanError(
                f'the column name "{output.name}" ({output.origin}) is reserved: in output_mode'
                " changelog results have the columns _diff and _tick",
                code="reserved-name",
                hint=f"rename it: {output.origin} AS {output.name}_2",
            )
            for output in outputs
            if output.name.lower() in CHANGE_COLUMNS
        ]
    joined: dict[str, str] = {}
    for i in inputs.in_order:
        for column in i.columns:
            name, owner = joined_name(i.alias, column.name), f'column "{column.name}" of "{i.alias}"'
            other = joined.setdefault(name, owner)
            if other != owner:
                errors.append(
                    PlanError(
                        f"{other} and {owner} both have the name {name}",
                        code="reserved-name",
                        hint="give one input an alias without a dot",
                    )
                )
    return errors


def _follow(inputs: JoinInputs) -> list[PlanError]:
    following = [s for i in inputs.in_order for s in i.sources if s.on_idle is OnIdle.FOLLOW]
    times = [(i.alias, column) for i in inputs.in_order if i.sources for column in i.event_times]
    if not following or len({inputs.unit(ref).is_time for ref in times}) < 2:
        return []
    return [
        PlanError(
            f"on_idle = 'follow' is not possible for \"{following[0].name}\": the event times of the"
            " inputs have different units"
            f" ({', '.join(f'{name_of(ref)} {inputs.column(ref).type}' for ref in times)})",
            code="follow-units",
            hint="remove on_idle = 'follow', or cast the event times to the same type",
        )
    ]
