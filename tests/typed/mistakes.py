"""What type checkers have to find in a user's program: where one of these is no error any more, they complain."""

from __future__ import annotations

import watersmeet as ws
from watersmeet import local, pipelines
from watersmeet.testing import MemoryJob


def mistakes(orders: ws.Relation, text: str) -> None:
    ws.strem()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    ws.stream({"t": "BIGINT"}, time="t")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.joins(orders)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    orders.to_sink("out")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    orders.join(orders, within="1 hour")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ws.job(orders)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ws.job(orders.to_sink(ws.memory("a"))).start().stats  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    ws.plan_job(text)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    local.Comparison(local.left("t"), "==", 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    MemoryJob(text).tick([1])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    orders.foreach_batch(print, emits="final")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    pipelines.Lookup(source=1, keys={"ad": "id"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pipelines.StateStore(kind="disk", url="state")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
