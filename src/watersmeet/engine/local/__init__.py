"""The in-process engine: the same tick as on Spark, with expressions evaluated by an embedded SQL engine."""

from watersmeet.engine.local.job import LocalJob
from watersmeet.engine.local.output import Output, StepOutput
from watersmeet.engine.local.replay import replay_case
from watersmeet.trace.recorder import Tracer

__all__ = ["LocalJob", "Output", "StepOutput", "Tracer", "replay_case"]
