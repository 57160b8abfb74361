"""The in-process engine: the same tick as on Spark, with expressions evaluated by an embedded SQL engine."""

from watersmeet.runtime.local.job import LocalJob
from watersmeet.runtime.local.output import Output, StepOutput
from watersmeet.runtime.local.replay import replay_case
from watersmeet.trace.recorder import Tracer

__all__ = ["LocalJob", "Output", "StepOutput", "Tracer", "replay_case"]
