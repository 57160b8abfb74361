"""Explain why a row of an input is not in a result.

The answer comes from the row's source, read again, and from the watermarks of every tick in the history:

    history ──ticks──> ticks, watermarks, limits ─┐
    sources ──rows───> rows, each with its tick ──┴─ replay ──> results, outcomes ──> answer

A row's tick and the watermarks of that tick determine whether the row was late. For chains of joins and
inputs that change, the engine runs the ticks again (`replay`). For a join of two inputs, its condition, run
as a batch, determines which rows matched, and the watermarks determine when each row left, even if the
history no longer has every tick. If some of this is unknown, the answer states it.
"""
