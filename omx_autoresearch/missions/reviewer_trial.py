"""``init --try-reviewer``: one call of a draft's reviewer, outside any mission; nothing of it is kept."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.clients import CLIENT_NAMES
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.text import head_and_tail
from omx_autoresearch.missions.contracts import (
    OUTPUT_CHARACTERS,
    captured_secrets,
    compile_contract,
    declared_names,
)
from omx_autoresearch.missions.rules.review_reports import ReviewerTrial
from omx_autoresearch.missions.secrets import forms_of, masked_bytes, masked_report, with_secrets
from omx_autoresearch.missions.validation.output import read_output
from omx_autoresearch.missions.validation.review_folder import review_folder
from omx_autoresearch.missions.validation.reviewers import client_report, review_prompt, reviewer_argv
from omx_autoresearch.missions.validation.runs import report_of, run_validator

if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.intake import MissionDraft

PLACEHOLDER = b"This file is not written yet.\n"
"""Stands for an artifact that is not there; a reviewer rejects it."""


def try_reviewer(runtime: Runtime, workspace_path: str, draft: MissionDraft) -> ReviewerTrial:
    """Call a draft's reviewer once, as every review calls it, on the artifact or on a file that stands for it.

    Raises:
        UsageError: the draft names no reviewer.
        MissionInvalid: the draft cannot stand, or nothing would be pinned.
        WorkspaceFault: the workspace cannot be read.
        CommandFault: there is no clean folder.
    """
    if not draft.reviewer_command:
        raise UsageError(
            "--try-reviewer: the mission names no reviewer", next_step=f"--reviewer {CLIENT_NAMES[0]}"
        )
    contract, manifest = compile_contract(runtime, workspace_path=workspace_path, draft=draft)
    secrets = captured_secrets(runtime, declared_names(draft))
    forms, nonce = forms_of(secrets.values()), runtime.new_id()
    own = (
        os.path.join(os.path.realpath(workspace_path), pin.path)
        for pin in manifest.pins
        if pin.kind == "file"
    )
    with (
        tempfile.TemporaryDirectory(prefix="omx-autoresearch-", ignore_cleanup_errors=True) as scratch,
        review_folder(
            workspace_path, contract, tuple((path, path) for path in own), placeholder=PLACEHOLDER
        ) as folder,
    ):
        result = run_validator(
            reviewer_argv(contract, folder, review_prompt(draft.goal, contract, folder, nonce)),
            with_secrets(contract, secrets),
            folder.path,
            os.path.join(scratch, "output"),
            os.path.join(scratch, "scratch"),
        )
        output = masked_bytes(read_output(result), forms)
        report = report_of(contract, folder.path, result, nonce)
    said = client_report(output.decode("utf-8", "replace"))
    return ReviewerTrial(
        report=masked_report(report, forms),
        output=head_and_tail(said.text.encode("utf-8", "replace") or output, OUTPUT_CHARACTERS),
        duration_seconds=result.duration_seconds,
        cost_usd=said.cost_usd,
        tokens=said.tokens,
        model=said.model,
    )
