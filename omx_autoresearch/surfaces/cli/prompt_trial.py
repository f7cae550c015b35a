"""Trying whether a client's own prompt is proven to be a person's: ``doctor CLIENT --prompt``.

The installed program runs headless in a scratch home, on a prompt that cancels a scratch mission. It has no model to
talk to and needs none: a client calls its hooks before it asks the model.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

from omx_autoresearch.agents.install import install
from omx_autoresearch.agents.parts import Check
from omx_autoresearch.agents.registry import installation_of
from omx_autoresearch.missions.speakers import record_trial
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.surfaces.cli.demo import hook_program, make_scratch, start_mission

if TYPE_CHECKING:
    from omx_autoresearch.agents.parts import Trial
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.mission import Mission
    from omx_autoresearch.surfaces.cli.demo import Scratch

TRIAL_SECONDS = 60.0
"""How long the client may take until its hook has answered."""
_LOOK_SECONDS = 0.1
_NAME = "real prompt"


def try_prompt(runtime: Runtime, client: str) -> Check:
    """Run the client on PATH on one prompt, and record whether that was proven to be a person's.

    Raises:
        StorageFailed: the outcome cannot be recorded, or the scratch folder cannot be written.
    """
    trial = installation_of(client, "user", runtime.environ, "").trial
    program_path = shutil.which(client, path=runtime.environ.get("PATH"))
    if trial is None:
        return Check(_NAME, True, "this client has no proof; its prompts go by signs", is_about_hold=False)
    if program_path is None:
        what = f"no real prompt was tried: {client} is not on PATH"
        return Check(_NAME, False, what, f"put {client} on PATH, then try again", is_about_hold=False)
    root_path = os.path.realpath(tempfile.mkdtemp(prefix="omx-autoresearch-"))
    try:
        mission = _played(make_scratch(root_path), client, trial, program_path)
    finally:
        shutil.rmtree(root_path, ignore_errors=True)
    if mission.phase == "running" and not mission.refused_verbs:
        what = f"a real prompt did not reach our hook within {TRIAL_SECONDS:g} s"
        return Check(_NAME, False, what, f"start {client} once by hand, then try again", is_about_hold=False)
    is_proven = mission.phase == "cancelled"
    record_trial(runtime, client, is_proven=is_proven)
    if is_proven:
        return Check(
            _NAME, True, "a real prompt is proven to come from the client itself", is_about_hold=False
        )
    what = "this version fails the proof of its own prompts, so that they go by signs"
    return Check(
        _NAME, False, what, f"update {client} or omx-autoresearch, then try again", is_about_hold=False
    )


def _played(scratch: Scratch, client: str, trial: Trial, program_path: str) -> Mission:
    """The scratch mission after the client was given a prompt that cancels it."""
    mission = start_mission(scratch, goal="Try a prompt")
    path = f"{os.path.dirname(program_path)}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environ = {**scratch.environment(), "PATH": path, "SHELL": "/bin/sh", **dict(trial.environment)}
    for name, text in trial.files:
        os.makedirs(os.path.dirname(os.path.join(scratch.root_path, name)), exist_ok=True)
        with open(os.path.join(scratch.root_path, name), "w", encoding="utf-8") as stream:
            stream.write(text)
    installation = installation_of(client, "user", environ, "")
    install(installation, hook_program(scratch.home_path), environ=environ, without=("tools", "skill"))
    process = subprocess.Popen(
        [program_path, *trial.arguments, f"$autoresearch cancel {mission.task_id}"],
        cwd=scratch.project_path,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return _decided(MissionStore(scratch.runtime().home), mission, process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _decided(store: MissionStore, mission: Mission, process: subprocess.Popen[bytes]) -> Mission:
    """The mission once the prompt was answered, the client has ended, or the time is over."""
    give_up_at = time.monotonic() + TRIAL_SECONDS
    has_ended = False
    while not has_ended and time.monotonic() < give_up_at:
        has_ended = process.poll() is not None
        mission = store.load(mission.task_id)
        if mission.phase != "running" or mission.refused_verbs:
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_SECONDS)
    return mission
