"""What is checked before Java starts: all that can be known of a run without Spark (`run`), of its sources
(`sources`), its state (`state`) and its sinks (`sinks.base.ChecksTarget`).

Nothing stays and nothing is held: a folder is made and removed to see whether one can be. A check refuses
only what the run would refuse; what is in doubt is left to the run.
"""
