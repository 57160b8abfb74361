"""A pipeline that can be run: from Python, from TOML, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from watersmeet.errors import raise_all
from watersmeet.parser.ddl.settings import as_text
from watersmeet.pipelines.build import build
from watersmeet.pipelines.model import (
    Description,
    Join,
    Lookup,
    Source,
    StateStore,
    Target,
    Transform,
    Window,
)
from watersmeet.pipelines.problems import errors_of
from watersmeet.pipelines.rules import Parts, problems, warnings_of
from watersmeet.pipelines.run_options import first_line, run_settings_of
from watersmeet.pipelines.toml import Places, read, to_toml
from watersmeet.plan.explain import explain

if TYPE_CHECKING:
    from watersmeet.background_job import StartedJob
    from watersmeet.observe.progress import TickReport
    from watersmeet.parser.ddl.create import Infer
    from watersmeet.relations.job import Job
    from watersmeet.running import OnTick, RunResult

Notice = Callable[[str], None]


class Pipeline(Description):
    """Streams, what is made of them, and where that goes.

    Raises, when it is made: SpecError, or SeveralErrors with all that is wrong.

    >>> from watersmeet.pipelines import Join, Pipeline, Source, Target, Transform
    >>> clicked = Pipeline(
    ...     name="clicked",
    ...     sources=[
    ...         Source(name=name, connection={"connector": "memory"},
    ...                columns={"ad": "BIGINT", "at": "TIMESTAMP"})
    ...         for name in ("impressions", "clicks")],
    ...     transform=Transform(join=Join(left_source="impressions", right_source="clicks", left_keys="ad",
    ...         right_keys="ad", min_delta=0, max_delta="5 minutes", event_time_column="at", how="left")),
    ...     target=Target(connection={"connector": "console"}))
    >>> Pipeline.from_toml(clicked.to_toml()) == clicked
    True
    """

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        raise_all(errors_of(problems(Parts.of(self))))

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @staticmethod
    def from_toml(text: str, source_name: str | None = None) -> Pipeline:
        """Parse the pipeline of a TOML text.

        Args:
            source_name: name of its file, for messages.

        Raises:
            SpecError, SeveralErrors: the text is wrong; each error has file, line and key.
        """
        return read(text, source_name, Pipeline)[0]

    def to_toml(self) -> str:
        """Write the pipeline as TOML."""
        return to_toml(self)

    def job(self, *, infer: Infer | None = None, settings: Mapping[str, str] | None = None) -> Job:
        """Build and plan the pipeline's job; it equals a job built by any other interface.

        Args:
            infer: returns the columns of sources that declare none; None: read them from the files.
            settings: settings as with SET in SQL; they take precedence over the pipeline's.

        Raises:
            WatersmeetError: the pipeline is wrong.
        """
        return build(self, infer=infer or self._inferring(settings or {}, None), overrides=settings)

    def explain(self) -> str:
        """Explain how the pipeline would run."""
        return explain(self.job().plan)

    def warnings(self) -> list[str]:
        """Return warnings to show before the run, such as limits that forecasts exceed.

        Raises:
            WatersmeetError: the pipeline is wrong.
        """
        return warnings_of(self, self.job().plan)

    def start(self, *, on_tick: Callable[[TickReport], None] | None = None) -> StartedJob:
        """Start the pipeline in a thread of its own; `StartedJob.notices` has the notices for people.

        Raises:
            WatersmeetError: the pipeline is wrong. `StartedJob` reports errors of the running job.
        """
        return self._build_job({}).start(on_tick=on_tick)

    def run(
        self,
        *,
        settings: Mapping[str, str | int | bool] | None = None,
        on_tick: OnTick | None = None,
        on_notice: Notice | None = None,
    ) -> RunResult:
        """Run the pipeline until it ends or is stopped, as `watersmeet.run` runs a text.

        Args:
            settings: as with SET in SQL; they take precedence over the pipeline's.
            on_tick: called after every tick.
            on_notice: called with each notice for people; None: notices are printed to standard error.

        Raises:
            WatersmeetError: the run failed; nothing is lost, and the pipeline can be run again.
        """
        asked = {name: as_text(value) for name, value in (settings or {}).items()}
        return self._build_job(asked).run(on_tick=on_tick, on_notice=on_notice)

    def _build_job(self, overrides: Mapping[str, str]) -> Job:
        """Build the job, with the inferred columns that its run remembers and with its notices."""
        line = first_line(self, run_settings_of(self, overrides))
        notices = [] if line is None else [line]
        infer = self._inferring(overrides, notices.append)
        made = build(self, infer=infer, overrides=overrides)
        notices += warnings_of(self, made.plan)
        return replace(made, _inferred=infer.inferred, _notices=notices)

    def _inferring(self, overrides: Mapping[str, str], say: Notice | None) -> Any:
        from watersmeet.running import inferring

        run = run_settings_of(self, overrides)
        return inferring(run, run["checkpoint"], say)


def read_pipeline(text: str, source_name: str | None) -> tuple[Pipeline, Places]:
    """Parse the pipeline of a TOML text, and return it with the locations of its keys.

    Raises:
        SpecError, SeveralErrors: the text is wrong; each error has file, line and key.
    """
    return read(text, source_name, Pipeline)


def run_streaming_pipeline(
    *,
    name: str,
    sources: Sequence[Source],
    target: Target,
    join: Join | None = None,
    window: Window | None = None,
    lookups: Mapping[str, Lookup] | None = None,
    transform: Sequence[Transform] | None = None,
    state_store: StateStore | None = None,
    checkpoint: str | None = None,
    settings: Mapping[str, Any] | None = None,
    on_tick: OnTick | None = None,
    on_notice: Notice | None = None,
) -> RunResult:
    """Run a pipeline until it ends or is stopped; resume from its state.

    Args:
        name: name of the pipeline, and of its state.
        join, window, lookups: the only transform.
        transform: several transforms, each over the output of the previous one, instead of these.
        state_store: where its state is; None: next to the checkpoint.
        checkpoint: the directory of the checkpoint; None: ``.watersmeet/<name>``.
        settings: settings as with SET in SQL, such as ``{"until_caught_up": True}``.
        on_tick: called after every tick.
        on_notice: called with each notice for people; None: print notices to standard error.

    Raises:
        WatersmeetError: the pipeline is wrong; the error lists all problems of one stage.

    >>> from watersmeet import WatersmeetError, pipelines as p
    >>> shown, clicked = (
    ...     p.Source(name=name, connection={"connector": "file", "path": f"in/{name}", "format": "csv"},
    ...              columns={"ad": "BIGINT", "at": "TIMESTAMP"})
    ...     for name in ("shown", "clicked"))
    >>> try:  # what is wrong is told before Spark is started
    ...     run_streaming_pipeline(
    ...         name="clicks", sources=[shown, clicked],
    ...         join=p.Join(left_source=shown, right_source=clicked, left_keys="ad", right_keys=["ad", "at"],
    ...                     time_window="5 minutes", event_time_column="at"),
    ...         target=p.Target(connection={"connector": "file", "path": "out/clicks", "format": "json"}))
    ... except WatersmeetError as error:
    ...     print(error.message)
    transform.join.right_keys has 2 columns, and left_keys 1
    """
    made = build_pipeline(
        name=name,
        sources=sources,
        target=target,
        join=join,
        window=window,
        lookups=lookups,
        transform=transform,
        state_store=state_store,
        checkpoint=checkpoint,
        settings=settings,
    )
    return made.run(on_tick=on_tick, on_notice=on_notice)


def pipeline(
    *,
    sources: Sequence[Source],
    target: Target,
    name: str | None = None,
    state_store: StateStore | None = None,
    checkpoint: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], Pipeline]:
    """Make a pipeline from a function that returns its steps.

    The function is called once, with the sources that its parameters name. It returns a `Join`, a `Window`, a
    `Transform`, or a list of these, one for each step.

    Args:
        name: name of the pipeline. None: the name of the function. In both cases the first line of the
            function's docstring is the pipeline's description.

    Raises:
        SpecError: the pipeline has an error.
        SeveralErrors: the pipeline has several errors; it contains all of them.

    >>> from watersmeet import pipeline, pipelines as p
    >>> columns = {"ad": "BIGINT", "at": "TIMESTAMP"}
    >>> streams = [
    ...     p.Source(name=name, connection={"connector": "memory"}, columns=columns)
    ...     for name in ("shown", "clicked")]
    >>> @pipeline(sources=streams, target=p.Target(connection={"connector": "console"}))
    ... def both(shown, clicked):
    ...     return p.Join(left_source=shown, right_source=clicked, left_keys="ad", right_keys="ad",
    ...                   time_window="5 minutes", event_time_column="at")
    >>> both.name, both.join.how
    ('both', 'inner')
    """

    def build_from_function(function: Callable[..., Any]) -> Pipeline:
        called = getattr(function, "__name__", type(function).__name__)
        given = _call_with_sources(function, called, sources)
        steps = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        return build_pipeline(
            name=name or called,
            sources=sources,
            target=target,
            transform=[_step(step, called) for step in steps],
            state_store=state_store,
            checkpoint=checkpoint,
            settings=settings,
            description=next(iter((function.__doc__ or "").strip().splitlines()), None),
        )

    return build_from_function


def build_pipeline(
    *,
    join: Join | None = None,
    window: Window | None = None,
    lookups: Mapping[str, Lookup] | None = None,
    transform: Sequence[Transform] | None = None,
    **more: Any,
) -> Pipeline:
    """Create the pipeline from `run_streaming_pipeline`'s arguments.

    Raises:
        SpecError, SeveralErrors: the arguments are wrong.
    """
    from watersmeet.errors import SpecError

    one = {"join": join, "window": window, "lookups": lookups or None}
    said = [key for key, value in one.items() if value is not None]
    if transform is not None and said:
        raise SpecError(
            f"transform is given together with {' and '.join(said)}",
            code="duplicate-option",
            hint="use join=… for one transform, or transform=[Transform(join=…), Transform(window=…)] for"
            " several",
        )
    own = [Transform(join=join, window=window, lookups=dict(lookups or {}))] if said else []
    steps = own if transform is None else list(transform)
    given = {key: value for key, value in more.items() if value is not None}
    given |= {"sources": list(given["sources"])} if isinstance(given.get("sources"), Sequence) else {}
    return Pipeline(transform=steps, **given)


def _call_with_sources(function: Callable[..., Any], called: str, sources: Sequence[Source]) -> Any:
    """Call the function with the sources that its parameters name, and return its result."""
    from inspect import Parameter, signature

    from watersmeet.errors import SpecError, near_names

    by_name = {source.name: source for source in sources}
    parameters = signature(function).parameters
    for name in parameters:
        if name not in by_name:
            raise SpecError(
                f'{called}: there is no source "{name}", but the function has a parameter of that name',
                code="unknown-source",
                hint=near_names(name, by_name),
            )
    by_keyword = [name for name, of in parameters.items() if of.kind is Parameter.KEYWORD_ONLY]
    return function(
        *(by_name[name] for name in parameters if name not in by_keyword),
        **{name: by_name[name] for name in by_keyword},
    )


def _step(given: Any, function: str) -> Transform:
    from watersmeet.errors import SpecError

    if isinstance(given, Transform):
        return given
    if isinstance(given, Join):
        return Transform(join=given)
    if isinstance(given, Window):
        return Transform(window=given)
    raise SpecError(
        f"{function}: returns {given!r}, which is not a step of a pipeline",
        code="bad-value",
        hint="a Join, a Window, a Transform, or a list of them",
    )
