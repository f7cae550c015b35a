"""The baseline: the validator of a mission before any work, which shows what can be frozen and how."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.errors import StepIllegal, WorkspaceFault
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.freezing import pins
from omx_autoresearch.freezing.discovery import with_opened
from omx_autoresearch.freezing.meanwhile import Meanwhile
from omx_autoresearch.freezing.opened import Opened
from omx_autoresearch.missions.contracts import try_validator
from omx_autoresearch.missions.rules.criteria import has_measured
from omx_autoresearch.missions.validation.clean_copy import clean_copy, lacking
from omx_autoresearch.missions.validation.named_tests import agreed
from omx_autoresearch.missions.validation.runs import is_narrowed
from omx_autoresearch.system.sandbox import box, can_isolate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omx_autoresearch.freezing.listings import End
    from omx_autoresearch.freezing.manifest import PinManifest
    from omx_autoresearch.missions.contracts import Tryout
    from omx_autoresearch.missions.rules.mission import Contract

OF_BASELINE = (
    *("baseline_tests", "baseline_score", "baseline_reports", "mounts_pins", "written_by_check"),
    *("baseline_skipped", "named_tests", "named_tests_digest"),
)
"""Fields of a contract that a baseline found out, and that stay as long as the validator does."""
SHORT_BASELINE_SECONDS = 5.0
"""A baseline that fails as quickly as this is run once more without mounts, whatever it says."""
LISTED_TWICE_SECONDS = 120.0
"""A baseline that takes no longer is run again where its tests have names, to see which names stay."""


class Baseline:
    """The validator before any work, run as every later run will be: with the frozen copies in place.

    A check that fails so is run again without them. If it then ends otherwise, it writes its own files, which are not
    frozen from then on, or it needs a right that such a run does not have: its files are hashed then, and not mounted.
    """

    def __init__(  # noqa: PLR0913  # what is run and where, and who asks for it
        self,
        contract: Contract,
        manifest: PinManifest,
        workspace_path: str,
        frozen_path: str,
        *,
        files: Sequence[str] = (),
        is_agent: bool,
        is_sandboxed: bool,
    ) -> None:
        self._contract = contract
        self._workspace_path = workspace_path
        self._frozen_path = frozen_path
        self._files = files
        self._opened: list[set[str]] = []
        """What each run opened of the project."""
        self._unlearned = ""
        self._is_agent = is_agent
        self._needs_box = is_agent or is_sandboxed
        self._isolation = box().backend if self._needs_box else "none"
        self.manifest = manifest
        self.tryout: Tryout | None = None
        self.written: tuple[str, ...] = ()
        self.mounts_pins = contract.mounts
        self.notes: tuple[str, ...] = ()
        self._unseen = ""
        self._listings: list[dict[str, End]] = []

    @property
    def named_tests(self) -> tuple[str, ...]:
        """Names of tests that must pass; those that every run listed alike."""
        return agreed(self._listings) if self._listings else ()

    def run(self) -> Baseline:
        """Run it, and settle what is frozen and how.

        Raises:
            StepIllegal: it passes already, so it could not tell whether anything was done.
            WorkspaceFault: a pinned file was written meanwhile, and not by the check alone.
        """
        if (self._needs_box or is_narrowed(self._contract)) and not can_isolate():
            return self
        self.tryout = tryout = self._tried()
        if self._unseen and sys.platform == "linux":  # other systems have more that start tells of
            self.notes += (self._unseen,)
        report = tryout.report
        if report.verdict == "passed" and not has_measured(self._contract.criteria):
            raise StepIllegal(
                f"the validator already passes: {report.summary}",
                next_step="make it check what is missing, or start with --no-baseline",
            )
        self._learn()
        if self._contract.confirm:
            self.notes += self._missing_in_a_clean_copy(tryout)
        self._list_again(tryout)
        if names := self.named_tests:
            others = max(0, (report.tests or 0) - len(names))
            by_number = f", {others} more by number" if others else ""
            self.notes += (f"{count_of(len(names), 'test')} of the check must pass by name{by_number}",)
        return self

    def _list_again(self, tryout: Tryout) -> None:
        """Run it once more where its tests have names and one run alone listed them."""
        if tryout.report.tests and not tryout.listed:
            self.notes += (
                "tests count by number, since the check does not name them (most runners do with -v)",
            )
        if not tryout.listed or len(self._listings) > 1:
            return
        if tryout.duration_seconds <= LISTED_TWICE_SECONDS:
            self._observed(is_mounted=self.mounts_pins)
        else:
            limit = f"{LISTED_TWICE_SECONDS:g} s"
            why = f"names count where two runs list them alike, and the check takes longer than {limit}"
            self.notes += (f"tests count by number: {why}",)

    def _learn(self) -> None:
        """Keep what the check opened; where its owner named the work, that is frozen from now on."""
        if self._unlearned:
            self.notes += (f"what the check opens was not seen whole: {self._unlearned}",)
        if not self._opened:
            return
        # What only one of two runs opened that ended alike was opened by another program.
        found = set.intersection(*self._opened) if self.mounts_pins else set.union(*self._opened)
        self.manifest = with_opened(
            self.manifest, self._workspace_path, found, work=self._contract.work, files=self._files
        )
        pins.pin(self._frozen_path, self.manifest, self._workspace_path)

    def _missing_in_a_clean_copy(self, tryout: Tryout) -> tuple[str, ...]:
        """What keeps the check from ending in a clean copy as it ended in the workspace."""
        kept = {"keep": self._contract.keep, "link": self._contract.link}
        copies = pins.copies_of(self.manifest, self._workspace_path, self._frozen_path)
        with clean_copy(self._workspace_path, copies, **kept) as copy:
            clean = try_validator(
                self._contract, copy.path, isolation=self._isolation, shown_paths=(copy.root_path,)
            )
        if clean.has_same_end(tryout):
            return ()
        why = lacking(self._workspace_path, **kept)
        return (
            f"in a clean copy the check ends otherwise ({clean.report.summary})"
            + (f"; {why}" if why else ""),
        )

    def _tried(self) -> Tryout:
        mounted, touched_meanwhile = self._observed(is_mounted=self.mounts_pins)
        if not mounted.is_mounted:
            self.notes += _cannot_mount(mounted.mount_fault)
            _refuse_written(touched_meanwhile)  # nothing here tells the check's own writing from another's
            return mounted
        is_doubtful = mounted.was_refused or mounted.duration_seconds < SHORT_BASELINE_SECONDS
        if mounted.report.verdict == "passed" or mounted.report.cause == "timed-out" or not is_doubtful:
            _refuse_written(touched_meanwhile)
            return mounted
        plain, touched_meanwhile = self._observed(is_mounted=False)
        if not mounted.was_refused:  # it wrote none of them: whoever did is not the check
            _refuse_written(touched_meanwhile)
        self._leave_out(touched_meanwhile)
        if self.written:
            mounted, touched_meanwhile = self._observed(is_mounted=True)
        _refuse_written(touched_meanwhile if self.written else ())
        if not mounted.has_same_end(plain):
            self.mounts_pins = False
            self.notes += (
                "the check does not run with frozen files mounted over its own: they are hashed instead",
            )
        return plain

    def _observed(self, *, is_mounted: bool) -> tuple[Tryout, tuple[str, ...]]:
        """One run, and the paths that judge and were made, written or moved meanwhile."""
        path = self._workspace_path
        meanwhile = Meanwhile(self.manifest, path, is_mounted=is_mounted)
        opened = Opened(meanwhile.watch, path, self._files)
        try:
            mounts = pins.copies_of(self.manifest, path, self._frozen_path) if is_mounted else ()
            tryout = try_validator(
                self._contract, path, isolation=self._isolation, mounts=mounts, watch=meanwhile.watch
            )
            self._opened.append(opened.paths())
            moved = meanwhile.moved(is_mounted=tryout.is_mounted)
        finally:
            meanwhile.close()
        self._unlearned = opened.fault if sys.platform == "linux" else "this system does not tell"
        self._unseen = meanwhile.unseen
        self._listings.append(tryout.listed)
        return tryout, moved

    def _leave_out(self, paths: tuple[str, ...]) -> None:
        """Freeze no longer what the check writes, where its owner watches, and enough is left that judges."""
        if not paths:
            return
        manifest = pins.without(self.manifest, paths)
        pinned = {pin.path for pin in self.manifest.pins}
        if self._is_agent or not pinned.issuperset(paths) or not manifest.judging_count:
            _refuse_written(paths)
        pins.pin(self._frozen_path, manifest, self._workspace_path)
        self.manifest, self.written = manifest, paths


def _cannot_mount(fault: str) -> tuple[str, ...]:
    return (f"frozen files are hashed before and after each run, not mounted ({fault})",) if fault else ()


def mounts_by_default(contract: Contract) -> bool:
    """Whether runs see the frozen copies where no baseline has shown that they can.

    A reviewer is often an agent CLI with a sandbox of its own, which the root user cannot make in a namespace.
    """
    return contract.mounts and not (contract.is_review and os.geteuid() == 0)


def _refuse_written(paths: tuple[str, ...]) -> None:
    """Refuse to freeze a file that the check itself writes: every run would be taken for tampering."""
    if paths:
        raise WorkspaceFault(
            f"{paths[0]} would be frozen, but was made, written or moved while the check ran",
            next_step=f"if the check itself writes it, exclude it: --protect '!{paths[0].rstrip('/')}'",
        )
