"""The export to a real local store of MLflow, read back by MLflow itself."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omx_autoresearch.experiments.reports import mlflow_export
from omx_autoresearch.experiments.reports.mlflow_export import export_to_mlflow, metric_names
from omx_autoresearch.foundation.errors import UsageError
from tests.experiments.samples import a_row, a_state, a_story, judged

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


def client_of(uri: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow.tracking import MlflowClient

        return MlflowClient(tracking_uri=uri, registry_uri=uri)


def runs_of(uri: str, name: str) -> tuple[Any, list[Any]]:
    """The parent run and its children, by trial."""
    client = client_of(uri)
    experiment = client.get_experiment_by_name(name).experiment_id
    runs = list(client.search_runs([experiment], max_results=1000))
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    return parent, sorted(children, key=lambda run: int(run.data.tags["omx.iteration"]))


def everything(uri: str, name: str) -> list[Any]:
    """All that the store holds of an experiment, in a form that can be compared."""
    client = client_of(uri)
    parent, children = runs_of(uri, name)
    return [
        (
            run.info.run_id,
            run.info.status,
            run.data.params,
            run.data.tags,
            {
                key: [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, key)]
                for key in run.data.metrics
            },
        )
        for run in (parent, *children)
    ]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the whole story, made once: MLflow lays out its tables for seconds."""
    folder = tmp_path_factory.mktemp("mlflow") / "store"
    export_to_mlflow(a_story(), str(folder), {"patch.diff": b"\x00binary", "report.html": b"<p>"})
    return folder


def uri_of(folder: Path) -> str:
    return f"sqlite:///{folder}/mlflow.db"


NAME = "omx-autoresearch: speed"


@pytest.mark.requirement("SEE-08")
def test_every_ended_trial_is_a_child_run_with_its_values(template: Path) -> None:
    _, children = runs_of(uri_of(template), NAME)
    assert [int(run.data.tags["omx.iteration"]) for run in children] == list(range(1, 9))
    second, third = children[1], children[2]
    assert second.data.metrics["metric"] == 90
    assert second.data.metrics["others/peak_mb"] == 12.5
    assert second.data.metrics["pairs"] == 8
    assert second.data.params["description"] == "use the smaller allocation path"
    assert second.data.tags["metadata.model"] == "m-1"
    assert (second.info.status, third.info.status) == ("FINISHED", "FAILED")
    assert second.info.end_time - second.info.start_time == 60_000
    samples = client_of(uri_of(template)).get_metric_history(second.info.run_id, "sample")
    assert [point.value for point in samples] == list(a_story().rows[1].samples)


@pytest.mark.case("STA-10")
def test_a_trial_without_a_value_has_none_in_the_store(template: Path) -> None:
    _, children = runs_of(uri_of(template), NAME)
    assert "metric" not in children[2].data.metrics


@pytest.mark.requirement("SEE-08")
def test_the_parent_run_has_the_incumbent_the_claim_and_the_files(template: Path) -> None:
    uri = uri_of(template)
    parent, _ = runs_of(uri, NAME)
    client = client_of(uri)
    incumbent = client.get_metric_history(parent.info.run_id, "incumbent")
    assert [(point.step, point.value) for point in incumbent] == [(0, 100), (2, 90), (6, 77)]
    assert parent.data.metrics["verified/gain"] == 0.231
    assert parent.data.tags["omx.claim"].startswith("Verified: total_ms is 23.1 % lower")
    assert parent.data.params["measure"] == "./measure.sh"
    assert parent.info.status == "RUNNING"
    names = {item.path for item in client.list_artifacts(parent.info.run_id)}
    assert names == {"patch.diff", "report.html", "trials.jsonl"}
    files = list(template.rglob("patch.diff"))
    assert [path.read_bytes() for path in files] == [b"\x00binary"]


@pytest.mark.requirement("SEE-08")
def test_exporting_again_changes_nothing_and_adds_what_is_new(template: Path) -> None:
    before = everything(uri_of(template), NAME)
    again = export_to_mlflow(a_story(), str(template))
    assert (again.added, again.known) == (0, 8)
    assert everything(uri_of(template), NAME) == before

    story = a_story()
    ended = replace(story.rows[-1], status="failed", reason_code="cancelled", ended_at=story.updated_at)
    more = replace(
        story,
        experiment_id="20260102-030405-more",
        rows=story.rows[:-1],
        config=replace(story.config, name="more"),
    )
    export_to_mlflow(more, str(template))
    done = replace(more, rows=(*more.rows, ended), phase="completed", completed_reason="cancelled")
    last = export_to_mlflow(done, str(template))
    assert (last.added, last.known) == (1, 8)
    parent, children = runs_of(last.tracking_uri, last.experiment_name)
    assert (parent.info.status, children[-1].info.status) == ("KILLED", "KILLED")
    for name in ("metric", "incumbent", "verified/gain"):
        history = client_of(last.tracking_uri).get_metric_history(parent.info.run_id, name)
        points = [(point.step, point.value) for point in history]
        assert len(set(points)) == len(points)


@pytest.mark.requirement("SEE-08")
def test_a_run_that_an_interrupted_export_left_unfinished_is_made_anew(
    template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = replace(
        a_state([judged(1, 100, 98), judged(2, 100, 97)], experiment_id="20260102-030405-cut"),
        config=replace(a_state().config, name="cut"),
    )
    written = []
    whole = mlflow_export._log

    def killed_at_the_second(mlflow: Any, run_id: str, *values: Any) -> None:
        written.append(run_id)
        if len(written) == 2:
            raise KeyboardInterrupt
        whole(mlflow, run_id, *values)

    monkeypatch.setattr(mlflow_export, "_log", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        export_to_mlflow(state, str(template))
    monkeypatch.undo()
    done = export_to_mlflow(state, str(template))
    assert (done.added, done.known) == (1, 1)
    _, children = runs_of(done.tracking_uri, done.experiment_name)
    assert [run.data.metrics["metric"] for run in children] == [98, 97]
    assert written[1] not in {run.info.run_id for run in children}


def test_texts_beyond_mlflows_limits_and_odd_names_are_taken(template: Path) -> None:
    row = judged(
        1,
        100,
        98,
        description="x" * 20_000,
        others={"p99.9%": 1.0, "p99.9@": 2.0, "a/b": 3.0, "..": 4.0, "µs": 5.0},
        metadata={"a/b:c": {"deep": [1]}, "": "empty"},
        samples=tuple(float(number) for number in range(1200)),
    )
    state = a_state([row], experiment_id="20260102-030405-odd")
    done = export_to_mlflow(replace(state, config=replace(state.config, name="odd")), str(template))
    _, (child,) = runs_of(done.tracking_uri, done.experiment_name)
    assert len(child.data.params["description"]) == 5000
    assert {child.data.metrics[name] for name in metric_names(row.others).values()} == {
        1.0,
        2.0,
        3.0,
        4.0,
        5.0,
    }


def test_names_stay_apart_when_they_are_cleaned() -> None:
    names = metric_names({"a%": 0, "a@": 0, "a_": 0})
    assert sorted(names.values()) == ["others/a_", "others/a__2", "others/a__3"]


@pytest.mark.requirement("SEE-08")
@pytest.mark.slow  # MLflow is imported anew
def test_nothing_is_sent_while_mlflow_works_for_us(tmp_path: Path) -> None:
    """In a process that MLflow cannot take for a test or a CI run, where it would send usage reports by itself."""
    program = """
import socket, sys, threading
tried = []
def refuse(self, address, *rest):
    tried.append(address)
    raise OSError("no network")
def no_name(*rest, **options):
    tried.append(rest)
    raise OSError("no network")
socket.socket.connect = refuse
socket.getaddrinfo = no_name
from tests.experiments.samples import a_story
from omx_autoresearch.experiments.reports.mlflow_export import export_to_mlflow
export_to_mlflow(a_story(), sys.argv[1])
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join(2)
print(tried)
"""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "store")],
        env={
            **kept,
            "PYTHONPATH": str(ROOT),
            "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
            "PYTHONWARNINGS": "ignore",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
    assert done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_the_environment_is_as_it_was_afterwards(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DO_NOT_TRACK", "0")
    before = dict(os.environ)
    export_to_mlflow(a_story(), str(template))
    assert dict(os.environ) == before


@pytest.mark.requirement("SEE-08")
@pytest.mark.parametrize("missing", ["mlflow", "sqlalchemy", "alembic"])
def test_a_missing_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match="extra `mlflow`") as caught:
        export_to_mlflow(a_story(), str(tmp_path / "store"))
    assert caught.value.next_step == "pip install 'omx-autoresearch[mlflow]'"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%20b", "a\nb"])
def test_a_path_that_cannot_be_an_address_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot hold an MLflow store"):
        export_to_mlflow(a_story(), str(tmp_path / name))


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc/passwd", "a\0b"])
def test_an_artifact_is_a_plain_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid artifact name"):
        export_to_mlflow(a_story(), str(tmp_path / "store"), {name: b""})


def test_a_file_that_is_no_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"not a database, but long enough to be looked at" * 40)
    with pytest.raises(UsageError, match=r"mlflow\.db.*file is not a database"):
        export_to_mlflow(a_state([a_row(1)]), str(tmp_path))
