"""Why a row of an input is not in a result: what became of it, by its source read again and by the watermarks
that the history has of every tick.

    history ──ticks──> ticks, watermarks, limits ─┐
    sources ──rows───> rows, each with its tick ──┴─ replay ──> results, outcomes ──> answer

A row's tick and the watermarks of that tick say what was late. Of chains of joins and of inputs that change,
the ticks are run again by the engine (`replay`). Of a join of two inputs its condition, run as a batch, says
which rows met, and the watermarks when each left, also where the history does not have each tick any more.
Where one of these is not known, the answer says so."""
