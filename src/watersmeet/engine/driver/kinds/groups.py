"""Groups over all rows: what is kept of them is hashed by the keys, and no watermark releases it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from watersmeet.engine.driver.kinds.base import CommonFields, Held, NodeDriver
from watersmeet.engine.driver.kinds.columns import grouped_columns
from watersmeet.engine.messages.shapes import SideShape
from watersmeet.engine.messages.summed import GroupShape
from watersmeet.errors import EngineError
from watersmeet.kernel.aggregate import quoted
from watersmeet.kernel.groups import LIMB, GroupParts, digits_of, group_parts
from watersmeet.kernel.hashing import hash_columns
from watersmeet.kernel.joined import JoinedColumn
from watersmeet.kernel.partial import AggregateCall
from watersmeet.plan.identity.origins import digest_of
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import GroupedPlan, GroupPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.state.runs.columns import StoredColumn
from watersmeet.types.arrow import sql_name


class GroupDriver(NodeDriver[GroupPlan, GroupShape]):
    def shape_of(
        self, query: QueryPlan, node: GroupPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> GroupShape:
        (side,) = sides
        types = {column.name: column.type for column in common["columns"]}
        parts = parts_of_groups(query, node, types)
        results = parts.result_types
        return GroupShape(
            **common,
            keys=node.keys,
            parts=parts,
            kept=kept_of_groups(side, [column for _, column in node.keys], parts, types),
            results=tuple((call.name, results[call.name]) for call in node.calls),
        )

    def leaving(self, node: GroupPlan, sides: tuple[SideShape, ...]) -> tuple[JoinedColumn, ...]:
        """What has to be grouped: the keys, and what the calls mention."""
        return grouped_columns(node, sides)

    def goes_by_new_rows(self, shape: GroupShape) -> bool:
        return not shape.parts.values  # else by all different values of the groups

    def held(self, query: QueryPlan, node: GroupPlan, side: SidePlan) -> Held:
        return Held(keys=tuple(dict.fromkeys(column for _, column in node.keys)))


def parts_of_groups(query: QueryPlan, node: GroupedPlan, types: Mapping[str, pa.DataType]) -> GroupParts:
    """What is kept of the node's groups; ``types``: of the columns.

    Raises:
        EngineError: it cannot be, for these types.
    """
    parts = group_parts(
        [column for _, column in node.keys],
        [
            AggregateCall(
                c.name, c.function, c.columns, tuple(types[a] for a in c.columns), c.distinct, c.filter
            )
            for c in node.calls
        ],
    )
    if isinstance(parts, str):
        call = next(call for call in node.calls if call.name == parts)
        raise EngineError(
            f'"{query.name}": {call.text} does not support the type'
            f" {', '.join(sql_name(types[a]) for a in call.columns)} where rows of a group can be"
            " retracted",
            code="aggregate-function",
            hint="cast its argument to another type",
        )
    _check_equality(query, node, parts, types)
    return parts


def _check_equality(
    query: QueryPlan, node: GroupedPlan, parts: GroupParts, types: Mapping[str, pa.DataType]
) -> None:
    """Raises: EngineError, where values are told apart of which nothing says when they are equal."""
    texts = dict(zip((column for _, column in node.keys), node.key_texts, strict=True))
    for column in (*texts, *parts.values):
        try:
            hash_columns([pa.array([], types[column])], 0)
        except TypeError:
            text = texts.get(column) or next(call.text for call in node.calls if column in call.columns)
            raise EngineError(
                f'"{query.name}": {text.replace("`", "")} is {sql_name(types[column])}, a type whose'
                " values cannot be compared for equality",
                code="wrong-types",
                hint="group by a part of it, such as map_keys(…), or by its text: to_json(…)",
            ) from None


def kept_of_groups(
    side: SideShape, keys: Sequence[str], parts: GroupParts, types: Mapping[str, pa.DataType]
) -> SideShape:
    """The side with what is kept of groups instead of rows. A sum is known by its text with the columns'
    origins in the place of their names.

    Args:
        keys: the columns of which groups have one value each; types: of all columns.
    """
    own = {column.name: column for column in side.layout.columns}
    names = list(dict.fromkeys([*keys, *parts.values]))
    fields = [pa.field(name, types[name]) for name in names]
    columns = [own[name] for name in names]
    if parts.real_sums:
        fields.append(pa.field(LIMB, pa.int16()))
        columns.append(StoredColumn(LIMB, digest_of(["limb"]), "limb"))
    for added in parts.added:
        meant, text = added.sql, added.sql
        for name, column in own.items():
            for written in (quoted(name), quoted(digits_of(name))):
                meant = meant.replace(written, column.origin)
                text = text.replace(written, column.text)
        fields.append(pa.field(added.name, added.type))
        columns.append(StoredColumn(added.name, digest_of(["group", meant, str(added.type)]), text))
    return replace(
        side,
        schema=pa.schema(fields),
        layout=replace(side.layout, event_times=(), columns=tuple(columns)),
        nullable=(),
    )
