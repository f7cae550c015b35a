"""Whatever an experiment and its agents do, the checkout stays as it is, and nothing of theirs runs in our name."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.experiments.worktrees.pair import Checkpoint, WorktreePair
from omx_autoresearch.experiments.worktrees.worktree import TreeFault
from omx_autoresearch.foundation.errors import WorkspaceFault
from tests.support.contents_on_disk import contents, everything, script
from tests.support.repositories import git, store_of, tree_of

if TYPE_CHECKING:
    from pathlib import Path

HOOKS = (
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-rewrite",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-push",
    "prepare-commit-msg",
    "reference-transaction",
)


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A file that exists once anything ran that must not."""
    return tmp_path / "ran"


def plant_hooks(folder: Path, ran: Path, *, status: int = 1) -> None:
    for name in HOOKS:
        script(folder / name, f"echo {name} >> {ran}; exit {status}")


def a_whole_experiment(repository: Path, work: Path) -> WorktreePair:
    """Baseline, an accepted trial, a rejected one, a refused one, closed; the trees are gone afterwards."""
    worktrees = WorktreePair.create(str(repository), str(work), "e1")
    (work / "candidate" / "a.py").write_text("better\n")
    made = worktrees.checkpoint("better")
    assert isinstance(made, Checkpoint)
    worktrees.incumbent.set_to(made.commit)
    (work / "candidate" / "a.py").write_text("worse\n")
    assert isinstance(worktrees.checkpoint("worse"), Checkpoint)
    worktrees.candidate.set_to(made.commit)
    git(work / "candidate", "init", "-q", "nest")
    assert isinstance(worktrees.checkpoint("nest"), TreeFault)
    worktrees.candidate.set_to(made.commit)
    assert worktrees.patch(worktrees.base_commit, made.commit)
    worktrees.close()
    return worktrees


@pytest.mark.requirement("TREE-10")
@pytest.mark.case("GIT-02")
def test_a_whole_experiment_leaves_the_checkout_byte_for_byte(repository: Path, tmp_path: Path) -> None:
    (repository / ".git" / "info" / "exclude").write_text("/.env\n/build\n/node_modules\n")
    (repository / ".env").write_text("SECRET=1")
    (repository / "build" / "deep").mkdir(parents=True)
    (repository / "build" / "deep" / "o").write_text("x")
    (repository / "node_modules").mkdir()
    (repository / "a.py").write_text("stashed\n")
    git(repository, "stash", "-q")
    git(repository, "worktree", "add", "-q", "../second", "-b", "second")
    git(repository, "update-index", "-q", "--refresh")
    before = everything(repository)
    worktrees = a_whole_experiment(repository, tmp_path / "work")
    assert everything(repository) == before
    worktrees.close(forget=True)
    assert everything(repository) == before
    assert not (repository / ".git" / "refs" / "omx-autoresearch").exists()


@pytest.mark.requirement("TREE-10")
@pytest.mark.case("GIT-02")
def test_what_an_agent_does_with_git_in_its_tree_reaches_nobody_else(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "a.py").write_text("stashed\n")
    git(repository, "stash", "-q")
    git(repository, "update-index", "-q", "--refresh")
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    before = everything(repository)
    candidate = tmp_path / "work" / "candidate"
    (candidate / "a.py").write_text("mine\n")
    git(candidate, "stash", "-q")
    git(candidate, "stash", "pop", "-q")
    git(candidate, "commit", "-qam", "mine")
    git(candidate, "branch", "-f", "main")
    git(candidate, "config", "--add", "core.pager", "evil")
    git(candidate, "worktree", "prune")
    git(candidate, "update-ref", "-d", "refs/heads/main")
    git(candidate, "reflog", "expire", "--expire=now", "--all")
    git(candidate, "gc", "-q", "--prune=now")
    made = worktrees.checkpoint("better")
    assert isinstance(made, Checkpoint)
    assert made.changed == ("a.py",)
    assert everything(repository) == before


@pytest.mark.requirement("TREE-11")
@pytest.mark.case("GIT-08")
@pytest.mark.case("GIT-09")
def test_no_hook_of_the_user_runs_and_none_can_refuse(
    repository: Path, tmp_path: Path, home: Path, ran: Path
) -> None:
    plant_hooks(repository / ".git" / "hooks", ran, status=3)
    plant_hooks(tmp_path / "global-hooks", ran)
    with open(home / ".gitconfig", "a", encoding="utf-8") as stream:
        stream.write(
            f"[core]\n\thooksPath = {tmp_path / 'global-hooks'}\n\tfsmonitor = {tmp_path}/global-hooks/pre-push\n"
        )
    worktrees = a_whole_experiment(repository, tmp_path / "work")
    final = git(repository, "-C", store_of(worktrees), "rev-parse", "refs/omx-autoresearch/1")
    assert worktrees.apply_to_user(final).is_applied
    worktrees.branches([("tried/1", final)])
    worktrees.close(forget=True)
    assert not ran.exists()


@pytest.mark.requirement("TREE-11")
@pytest.mark.case("GIT-10")
def test_nobody_is_asked_for_a_signature(repository: Path, tmp_path: Path, home: Path, ran: Path) -> None:
    gpg = script(tmp_path / "gpg", f"echo gpg >> {ran}; exit 1")
    with open(home / ".gitconfig", "a", encoding="utf-8") as stream:
        stream.write(f"[commit]\n\tgpgsign = true\n[tag]\n\tgpgsign = true\n[gpg]\n\tprogram = {gpg}\n")
    a_whole_experiment(repository, tmp_path / "work")
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "more"), "e2")
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    (tmp_path / "more" / "candidate" / "a.py").write_text("x\n")
    subprocess.run(
        ["git", "commit", "-qam", "an agent's"], cwd=worktrees.candidate.root_path, env=env, check=True
    )
    assert not ran.exists()


@pytest.mark.requirement("TREE-11")
def test_nothing_that_a_candidate_plants_ever_runs(repository: Path, tmp_path: Path, ran: Path) -> None:
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    candidate = tmp_path / "work" / "candidate"
    evil = script(candidate / "evil", f"echo ran >> {ran}; cat")
    plant_hooks(candidate / ".git" / "hooks", ran)
    (candidate / ".git" / "extra").write_text(f"[alias]\n\tstatus = !{evil}\n")
    for key, value in {
        "core.fsmonitor": str(evil),
        "core.hooksPath": ".git/hooks",
        "core.pager": str(evil),
        "core.sshCommand": str(evil),
        "core.editor": str(evil),
        "core.worktree": str(repository),
        "diff.external": str(evil),
        "diff.own.command": str(evil),
        "diff.own.textconv": str(evil),
        "extensions.worktreeConfig": "true",
        "filter.own.clean": str(evil),
        "filter.own.smudge": str(evil),
        "filter.own.process": str(evil),
        "gpg.program": str(evil),
        "include.path": "extra",
        "merge.own.driver": str(evil),
        "uploadpack.packObjectsHook": str(evil),
    }.items():
        git(candidate, "config", "-f", ".git/config", key, value)
    (candidate / ".git" / "config.worktree").write_text(f"[core]\n\tfsmonitor = {evil}\n")
    (candidate / ".gitattributes").write_text("* filter=own diff=own merge=own\n")
    (candidate / ".gitmodules").write_text(
        '[submodule "x"]\n\tpath = pkg\n\turl = ext::sh -c evil\n\tupdate = !evil\n'
    )
    (candidate / "a.py").write_text("better\n")
    made = worktrees.checkpoint("better")
    assert isinstance(made, Checkpoint)
    worktrees.incumbent.set_to(made.commit)
    (candidate / "a.py").write_text("worse\n")
    worktrees.candidate.set_to(worktrees.base_commit)
    worktrees.patch(worktrees.base_commit, made.commit)
    assert not ran.exists()


@pytest.mark.requirement("TREE-11")
def test_a_submodule_that_a_candidate_made_its_own_is_never_asked(
    repository: Path, tmp_path: Path, ran: Path
) -> None:
    inner = tmp_path / "inner"
    git(tmp_path, "init", "-q", "inner")
    (inner / "f").write_text("x")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "inner")
    git(repository, "submodule", "add", "-q", str(inner), "sub")
    git(repository, "commit", "-qm", "with a submodule")
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    sub = tmp_path / "work" / "candidate" / "sub"
    git(sub, "init", "-q")
    git(sub, "config", "core.fsmonitor", str(script(tmp_path / "evil", f"echo ran >> {ran}")))
    for number in range(300):
        (sub.parent / f"n{number}").write_text("x")
    fault = worktrees.candidate.snapshot()
    assert isinstance(fault, TreeFault)
    assert (fault.reason_code, fault.paths) == ("submodule_changed", ("sub",))
    worktrees.candidate.set_to(worktrees.base_commit)
    assert sorted(os.listdir(sub)) == ["f"]
    assert not ran.exists()


@pytest.mark.requirement("TREE-12")
def test_filters_of_the_user_work_and_relative_ones_are_the_users_own(
    repository: Path, tmp_path: Path, ran: Path
) -> None:
    script(repository / "tools" / "shout", "tr a-z A-Z")
    script(repository / "tools" / "whisper", "tr A-Z a-z")
    (repository / ".gitattributes").write_text("*.txt filter=loud\n")
    git(repository, "config", "filter.loud.clean", "./tools/whisper")
    git(repository, "config", "filter.loud.smudge", "./tools/shout %f")
    git(repository, "config", "filter.loud.required", "true")
    (repository / "a.txt").write_text("WORDS\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "filtered")
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    candidate = tmp_path / "work" / "candidate"
    assert (candidate / "a.txt").read_text() == "WORDS\n"
    script(candidate / "tools" / "whisper", f"echo ran >> {ran}; cat")
    (candidate / "a.txt").write_text("OTHER\n")
    made = worktrees.checkpoint("other")
    assert isinstance(made, Checkpoint)
    assert set(made.changed) == {"a.txt", "tools/whisper"}
    assert git(candidate, "cat-file", "blob", "HEAD:a.txt") == "other"
    assert (candidate / "a.txt").read_text() == "OTHER\n"
    assert not ran.exists()


@pytest.mark.requirement("TREE-12")
def test_a_filter_that_asks_git_finds_the_users_repository(repository: Path, tmp_path: Path) -> None:
    (repository / ".git" / "key").write_text("secret\n")
    (repository / ".gitattributes").write_text("*.txt filter=keyed\n")
    git(repository, "config", "filter.keyed.smudge", "cat - $(git rev-parse --git-dir)/key")
    git(repository, "config", "filter.keyed.clean", "grep -v secret")
    git(repository, "config", "filter.keyed.required", "true")
    (repository / "a.txt").write_text("text\nsecret\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "keyed")
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    assert (tmp_path / "work" / "candidate" / "a.txt").read_text() == "text\nsecret\n"
    assert worktrees.candidate.drift() == ()


@pytest.mark.requirement("TREE-12")
def test_a_filter_that_fails_at_the_start_is_a_fault_that_leaves_nothing(
    repository: Path, tmp_path: Path
) -> None:
    (repository / ".gitattributes").write_text("*.txt filter=broken\n")
    (repository / "a.txt").write_text("text\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "filtered")
    git(repository, "config", "filter.broken.clean", "cat")
    git(repository, "config", "filter.broken.smudge", "false")
    git(repository, "config", "filter.broken.required", "true")
    with pytest.raises(WorkspaceFault, match=r"a\.txt"):
        WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    assert os.listdir(tmp_path / "work") == []
    assert "omx" not in git(repository, "for-each-ref")


@pytest.mark.requirement("TREE-12")
def test_what_lfs_stored_for_a_checkpoint_goes_to_the_user_with_it(repository: Path, tmp_path: Path) -> None:
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    (tmp_path / "work" / "candidate" / "large.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    made = worktrees.checkpoint("m")
    assert isinstance(made, Checkpoint)
    stored = tmp_path / "work" / "checkpoints" / "lfs" / "objects" / "ab" / "cd" / "abcd"
    stored.parent.mkdir(parents=True)
    stored.write_text("large")
    assert worktrees.apply_to_user(made.commit).is_applied
    assert (repository / ".git" / "lfs" / "objects" / "ab" / "cd" / "abcd").read_text() == "large"


@pytest.mark.requirement("TREE-12")
def test_what_the_user_ignores_anywhere_is_no_change(repository: Path, tmp_path: Path, home: Path) -> None:
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "ignore").write_text("*.xdg\n")
    (repository / ".git" / "info" / "exclude").write_text("*.info\n")
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "one"), "e1")
    with open(home / ".gitconfig", "a", encoding="utf-8") as stream:
        stream.write("[core]\n\texcludesFile = ~/my-ignore\n")
    (home / "my-ignore").write_text("*.mine\n")
    other = WorktreePair.create(str(repository), str(tmp_path / "two"), "e2")
    for spaces, names in ((worktrees, ("a.xdg", "a.info")), (other, ("a.mine", "a.info"))):
        candidate = tmp_path / os.path.dirname(spaces.candidate.root_path) / "candidate"
        for name in names:
            (candidate / name).write_text("x")
        made = spaces.checkpoint("m")
        assert isinstance(made, Checkpoint)
        assert made.changed == ()
        assert not set(os.listdir(candidate)) & set(names)


@pytest.mark.requirement("TREE-12")
def test_a_setting_that_comes_later_changes_nothing(
    repository: Path, tmp_path: Path, home: Path, ran: Path
) -> None:
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    evil = script(tmp_path / "evil", f"echo ran >> {ran}; cat")
    for place in (home / ".gitconfig", repository / ".git" / "config"):
        with open(place, "a", encoding="utf-8") as stream:
            stream.write(f'[filter "late"]\n\tclean = {evil}\n\tsmudge = {evil}\n[core]\n\tautocrlf = true\n')
    candidate = tmp_path / "work" / "candidate"
    (candidate / ".gitattributes").write_text("* filter=late\n")
    (candidate / "a.py").write_text("better\n")
    assert isinstance(worktrees.checkpoint("m"), Checkpoint)
    assert (candidate / "a.py").read_bytes() == b"better\n"
    assert not ran.exists()


@pytest.mark.requirement("TREE-12")
def test_line_ends_are_as_in_the_checkout(repository: Path, tmp_path: Path) -> None:
    git(repository, "config", "core.autocrlf", "true")
    (repository / "a.py").unlink()
    git(repository, "checkout", "-q", "a.py")
    assert (repository / "a.py").read_bytes() == b"one\r\n"
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    candidate = tmp_path / "work" / "candidate"
    assert (candidate / "a.py").read_bytes() == b"one\r\n"
    (candidate / "a.py").write_bytes(b"one\ntwo\r\n")
    made = worktrees.checkpoint("m")
    assert isinstance(made, Checkpoint)
    assert (candidate / "a.py").read_bytes() == b"one\r\ntwo\r\n"
    assert worktrees.apply_to_user(made.commit).is_applied
    assert (repository / "a.py").read_bytes() == b"one\r\ntwo\r\n"
    assert git(repository, "write-tree") == tree_of(worktrees, made.commit)


@pytest.mark.requirement("TREE-10")
@pytest.mark.case("GIT-12")
def test_git_variables_of_the_surroundings_reach_nothing(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoy = tmp_path / "decoy"
    shutil.copytree(repository, decoy, symlinks=True)
    before = contents(decoy, without=())
    for name in ("GIT_DIR", "GIT_COMMON_DIR"):
        monkeypatch.setenv(name, str(decoy / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(decoy))
    monkeypatch.setenv("GIT_INDEX_FILE", str(decoy / ".git" / "index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(decoy / ".git" / "objects"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.bare=true'")
    worktrees = a_whole_experiment_without_helpers(repository, tmp_path / "work")
    assert contents(decoy, without=()) == before
    assert (repository / "a.py").read_text() == "better\n"
    worktrees.close(forget=True)


def a_whole_experiment_without_helpers(repository: Path, work: Path) -> WorktreePair:
    worktrees = WorktreePair.create(str(repository), str(work), "e1")
    (work / "candidate" / "a.py").write_text("better\n")
    made = worktrees.checkpoint("better")
    assert isinstance(made, Checkpoint)
    assert worktrees.apply_to_user(made.commit).is_applied
    return worktrees


_VICTIM = """
import sys
from omx_autoresearch.experiments.worktrees.pair import WorktreePair
root, work = sys.argv[1:]
worktrees = WorktreePair.create(root, work, "e1")
best = worktrees.base_commit
print("made", flush=True)
for number in range(1000):
    with open(worktrees.candidate.root_path + "/a.py", "w") as stream:
        stream.write(str(number))
    with open(worktrees.candidate.root_path + f"/n{number}", "w") as stream:
        stream.write(str(number))
    made = worktrees.checkpoint("m")
    if number % 2:
        best = made.commit
    worktrees.incumbent.set_to(best)
    worktrees.candidate.set_to(best)
"""


@pytest.mark.slow
@pytest.mark.requirement("TREE-07")
@pytest.mark.case("GIT-02")
@pytest.mark.case("GIT-19")
@pytest.mark.parametrize("milliseconds", [20, 45, 70, 100, 140, 190, 250, 330])
def test_a_kill_at_any_instant_leaves_the_checkout_alone_and_the_trees_can_be_used_again(
    repository: Path, tmp_path: Path, milliseconds: int
) -> None:
    before = everything(repository)
    work = tmp_path / "work"
    process = subprocess.Popen([sys.executable, "-c", _VICTIM, str(repository), str(work)], cwd=os.getcwd())
    deadline = time.monotonic() + 20
    while not (work / "checkpoints").exists() and time.monotonic() < deadline and process.poll() is None:
        pass
    try:
        process.wait(milliseconds / 1000)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.wait()
    assert everything(repository) == before
    if (work / "checkpoints" / "worktrees.json").exists():
        worktrees = WorktreePair.open(str(work))
    else:
        worktrees = WorktreePair.create(str(repository), str(work), "e1")
    for tree in worktrees.arms:
        tree.set_to(worktrees.base_commit)
    assert contents(work / "candidate") == contents(repository)
    assert contents(work / "incumbent") == contents(repository)
    worktrees.close(forget=True)
    assert everything(repository) == before


@pytest.mark.requirement("TREE-07")
@pytest.mark.case("GIT-19")
def test_a_tree_is_restored_only_after_the_git_of_a_killed_process_has_ended(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A smudge filter keeps that git at work after its owner was killed, until the restoration has begun to wait."""
    filters = (
        f"touch {tmp_path}/filtering; for i in $(seq 500); do [ -e {tmp_path}/go ] || sleep 0.01; done; cat"
    )
    git(
        repository, "config", "filter.slow.smudge", f"if [ -e {tmp_path}/slow ]; then {filters}; else cat; fi"
    )
    (repository / ".gitattributes").write_text("a.py filter=slow\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "a slow filter")
    work = tmp_path / "work"
    WorktreePair.create(str(repository), str(work), "e1")
    (work / "candidate" / "a.py").write_text("changed\n")
    (tmp_path / "slow").touch()
    code = (
        "import sys; from omx_autoresearch.experiments.worktrees.pair import WorktreePair as W\n"
        "w = W.open(sys.argv[1]); w.candidate.set_to(w.base_commit)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(work)])
    deadline = time.monotonic() + 60
    while not (tmp_path / "filtering").exists() and time.monotonic() < deadline and process.poll() is None:
        pass
    process.kill()
    process.wait()
    waits: list[float] = []

    def waited(seconds: float) -> None:
        waits.append(seconds)
        (tmp_path / "slow").unlink(missing_ok=True)
        (tmp_path / "go").touch()

    monkeypatch.setattr("omx_autoresearch.system.git.time.sleep", waited)
    worktrees = WorktreePair.open(str(work))
    worktrees.candidate.set_to(worktrees.base_commit)
    assert waits
    assert contents(work / "candidate") == contents(repository)
