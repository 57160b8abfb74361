"""What is checked before Java starts: all that can be known of a run without Spark (`run`), of its sources
(`sources`), its state (`state`) and its sinks (`sinks.base.ChecksTarget`).

Nothing is written, made or held. A check refuses only what the run would refuse; what is in doubt is left to
the run.
"""
