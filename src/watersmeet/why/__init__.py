"""Why a row of an input is not in a result: what became of it, told from its source read again and from the
watermarks that the history has of every tick.

    history ──recorded──> ticks, watermarks, limits ─┐
    sources ──reread──> rows, each with its tick ────┴─ judged ── matched ──> fates ──> answer

Nothing is run again: a row's tick and the watermarks of that tick say what was late and when what was
released; the condition of the join says which rows met. Where one of these is not known, the answer says so.
"""
