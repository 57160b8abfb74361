"""HOW a job is run: pure functions from ``spec`` to one frozen `JobPlan`; ``explain`` prints it."""
