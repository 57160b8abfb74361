"""Which state a command means: that of a job's text, or of a checkpoint directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from watersmeet.errors import SpecError, StateError, WatersmeetError
from watersmeet.objects.settings import CACHE, STORE, store_of
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, check_reset_finished
from watersmeet.state.manifest import manifest_names


def needs_job(named: Path | str) -> WatersmeetError:
    """Return the error for a directory where a command needs the text of a job."""
    if not any((Path(named) / name).exists() for name in ("state", "spark", "job")):
        return StateError(
            f"{named} is not a checkpoint directory",
            code="not-a-checkpoint",
            hint="name the job's file, or its checkpoint directory, such as .watersmeet/job",
        )
    return SpecError(
        f"{named} is a checkpoint directory, which does not record the columns of the job",
        code="no-job",
        hint="name the job's file; --checkpoint DIR if its state is in another directory",
    )


@dataclass(frozen=True)
class StateLocation:
    """``named``: as the user named it; ``text``: of the job, if that was named, ``settings``: of its run."""

    named: str
    checkpoint: Checkpoint
    text: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, named: Path, checkpoint: str | None, default: Path) -> StateLocation:
        """Find the state of a job's file or of a checkpoint directory.

        Args:
            named: A job's file or a checkpoint directory.
            checkpoint: Checkpoint directory of the job, if the user gave one.
            default: Checkpoint directory if the job's text names none.

        Raises:
            SpecError: ``named`` is neither, or the text cannot be read.
            StateError: A reset was interrupted there.
        """
        if checkpoint is None and named.is_dir():
            return cls(str(named), Checkpoint(named)).whole()
        from watersmeet.cli.job_file import read_text

        return cls.from_text(read_text(named), named, checkpoint, default)

    @classmethod
    def from_text(
        cls,
        text: str,
        named: Path,
        checkpoint: str | None,
        default: Path,
        overrides: Mapping[str, str] = MappingProxyType({}),
    ) -> StateLocation:
        """Find the state of a job's text.

        Args:
            overrides: Settings that take precedence over those in the text.

        Raises:
            SpecError, StateError: As `of`.
        """
        from watersmeet.cli.job_file import settings_in

        settings = settings_in(text, str(named), overrides)
        if STORE in settings:  # what is there is meant, not what this machine has of it
            settings = {**settings, CACHE: "none"}
        directory = checkpoint or settings.get("checkpoint", str(default))
        return cls(str(named), Checkpoint(directory, store_of(settings)), text, settings).whole()

    def whole(self) -> StateLocation:
        """Return this location after checking that no reset was interrupted there.

        Raises:
            StateError: A reset was interrupted.
        """
        root = self.checkpoint.root
        check_reset_finished(self.checkpoint, f"watersmeet reset JOB.sql --checkpoint {root}")
        return self

    def require_directory(self) -> None:
        """Raises: StateError when it is in an object store: whether a run goes on is not known there."""
        if self.checkpoint.stored_job is not None:
            raise StateError(
                f"the state is in {self.checkpoint.place}, where a command cannot tell whether the job runs",
                code="not-in-a-store",
                hint="the job itself removes files that it no longer needs",
            )

    def check_outside(self, to: Path) -> None:
        """Raises: StateError, if that is within the checkpoint directory, with which it would go."""
        if self.checkpoint.root.resolve() in to.resolve().parents:
            raise StateError(
                f"{to} is inside the checkpoint directory {self.checkpoint.root}, and would be removed with"
                " it",
                code="not-outside",
                hint="use a directory outside of it",
            )

    def ticks(self) -> list[str]:
        """Return the names of all manifests, oldest first.

        Raises:
            StateError: There is none.
        """
        names = manifest_names(self.checkpoint.store)
        if not names:
            raise self.checkpoint.no_state_error()
        return names
