"""The first rows of partitions: what is kept of these is hashed by the partitions' columns, and no watermark
releases it."""

from __future__ import annotations

import pyarrow as pa

from watersmeet.engine.driver.kinds.base import CommonFields, Held, NodeDriver
from watersmeet.engine.driver.kinds.columns import grouped_columns
from watersmeet.engine.driver.kinds.groups import kept_of_groups
from watersmeet.engine.messages.shapes import SideShape
from watersmeet.engine.messages.summed import RankShape
from watersmeet.errors import EngineError
from watersmeet.kernel.aggregate import is_ordered
from watersmeet.kernel.joined import JoinedColumn
from watersmeet.kernel.ranks import order_sql, rank_parts
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import RankPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.types.arrow import sql_name


class RankDriver(NodeDriver[RankPlan, RankShape]):
    def shape_of(
        self, query: QueryPlan, node: RankPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> RankShape:
        (side,) = sides
        types = {column.name: column.type for column in common["columns"]}
        for (_, column), text in zip(node.keys, node.key_texts, strict=True):
            if not is_ordered(types[column]):
                raise EngineError(
                    f'"{query.name}": {text.replace("`", "")} is {sql_name(types[column])}, which has'
                    " no order; ROW_NUMBER() orders rows with equal keys by all selected columns",
                    code="wrong-types",
                    hint="remove the column from the SELECT with ROW_NUMBER(), or select it as text:"
                    " to_json(…)",
                )
        columns, partition = dict(node.keys), _partition(node)
        values = [column for column in dict.fromkeys(columns.values()) if column not in partition]
        parts = rank_parts(values)
        order = [(columns[key.name], key.descending, key.nulls_first) for key in node.ranking.order]
        return RankShape(
            **common,
            keys=node.keys,
            parts=parts,
            kept=kept_of_groups(side, [*partition, *values], parts, types),
            results=((node.ranking.number, pa.int32()),) if node.numbered else (),
            partition=partition,
            order=order_sql(order),
            most=node.most,
        )

    def leaving(self, node: RankPlan, sides: tuple[SideShape, ...]) -> tuple[JoinedColumn, ...]:
        return grouped_columns(node, sides)

    def held(self, query: QueryPlan, node: RankPlan, side: SidePlan) -> Held:
        return Held(keys=_partition(node))


def _partition(node: RankPlan) -> tuple[str, ...]:
    columns = dict(node.keys)
    return tuple(dict.fromkeys(columns[name] for name in node.ranking.partition))
