"""What a job's past ticks were, in figures: kept small beside its state, and read when it has ended, too.

    TickResult ──figures──> points ──keeping──> segments in the store ──past──> series, runs, what was told

Nothing is computed from it, and nothing waits for it: a history that cannot be written is told of once, and
the job goes on without. It may lack the last seconds of a run that was killed; the numbers of ticks show it.
"""
