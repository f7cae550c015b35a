"""Pinned files: what is taken, how a change is noticed, and how it is put back."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from omx_autoresearch.foundation.errors import StateUntrusted, WorkspaceFault
from omx_autoresearch.freezing import discovery, new_pins, pins, restoration
from omx_autoresearch.freezing.manifest import Pin, PinManifest


def write(root: Path, name: str, text: str = "", *, mode: int = 0o644) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def paths(manifest: PinManifest, kind: str = "file") -> list[str]:
    return [pin.path for pin in manifest.pins if pin.kind == kind]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    write(root, "check.sh", "#!/bin/sh\n. ./lib/cases.sh\npython parser.py < corpus.txt\n", mode=0o755)
    write(root, "lib/cases.sh", "true\n")
    write(root, "parser.py", "pass\n")
    return root


@pytest.fixture
def frozen(tmp_path: Path) -> str:
    return str(tmp_path / "frozen")


def take(root: Path, command: str = "./check.sh", protect: tuple[str, ...] = ()) -> PinManifest:
    return discovery.find(str(root), commands=[command], protect=protect)


# --- what is taken


@pytest.mark.requirement("DONE-14")
@pytest.mark.case("VAL-08")
def test_a_script_and_what_it_sources_are_pinned_but_not_the_program_that_it_judges(work: Path) -> None:
    manifest = take(work)
    assert paths(manifest) == ["check.sh", "lib/cases.sh"]
    assert any(note.startswith("parser.py is named in check.sh") for note in manifest.notes)


@pytest.mark.parametrize(
    ("command", "pinned"),
    [
        ("./check.sh", ["check.sh"]),
        ("$PWD/check.sh", ["check.sh"]),
        ("python tools/run.py --fast", ["tools/run.py"]),
        ("bash -c './check.sh && python tools/run.py'", ["check.sh", "tools/run.py"]),
        ("FOO=1 BAR='a b' ./check.sh", ["check.sh"]),
        ("cd tools && python run.py", ["tools/run.py"]),
        ("python -m tools.run", ["tools/run.py"]),
        ("python tools/run.py --config=tools/a.toml", ["tools/a.toml", "tools/run.py"]),
        ("./check.sh < want.txt > got.txt 2> err.log", ["check.sh", "want.txt"]),
        ("./check.sh | tee got.txt", ["check.sh"]),
        ("python tools/run.py -o got.txt --report=err.log", ["tools/run.py"]),
        ("sh -c \"it's ./check.sh", ["check.sh"]),
        ("true", []),
        ("/bin/true ../outside.sh", []),
    ],
)
def test_a_command_pins_the_files_that_it_names_and_none_that_it_writes(
    tmp_path: Path, command: str, pinned: list[str]
) -> None:
    write(tmp_path, "outside.sh")
    root = tmp_path / "w"
    for name in ("check.sh", "tools/run.py", "tools/a.toml", "want.txt", "got.txt", "err.log"):
        write(root, name)
    assert paths(take(root, command)) == pinned


def test_an_absolute_path_into_the_workspace_is_pinned_through_any_spelling_of_it(
    work: Path, tmp_path: Path
) -> None:
    (tmp_path / "spelled").symlink_to(work)
    assert "check.sh" in paths(take(tmp_path / "spelled", f"{work}/check.sh"))


def test_a_makefile_is_pinned_with_the_scripts_of_the_target_alone(tmp_path: Path) -> None:
    text = "include rules.mk\nall: main.c\n\tcc main.c\ntest: unit\n\tsh ci/check.sh\nunit:\n\tpytest -q\n"
    write(tmp_path, "Makefile", text)
    for name in ("rules.mk", "main.c", "ci/check.sh", "ci/other.sh", "test_a.py"):
        write(tmp_path, name)
    manifest = take(tmp_path, "make test")
    assert paths(manifest) == ["Makefile", "ci/check.sh", "rules.mk", "test_a.py"]
    assert "GNUmakefile" in paths(manifest, "absent-guard")
    assert manifest.runners == ("make", "pytest")


def test_package_scripts_are_commands_too(tmp_path: Path) -> None:
    write(
        tmp_path,
        "package.json",
        '{"scripts": {"test": "node ci/check.js && jest", "build": "node build.js"}}',
    )
    for name in ("ci/check.js", "build.js", "src/a.js", "src/a.test.ts", "jest.config.js"):
        write(tmp_path, name)
    assert paths(take(tmp_path, "npm test")) == [
        "ci/check.js", "jest.config.js", "package.json", "src/a.test.ts",
    ]  # fmt: skip


@pytest.mark.requirement("DONE-15")
def test_existing_tests_their_helpers_and_configuration_are_pinned_and_lock_files_are_not(
    tmp_path: Path,
) -> None:
    names = (
        "test_a.py", "tests/b_test.py", "tests/helpers.py", "tests/data.json", "pkg/conftest.py", "pyproject.toml",
        "poetry.lock", "src/app.py", "node_modules/x/test_no.py", ".venv/test_no.py",
    )  # fmt: skip
    for name in names:
        write(tmp_path, name)
    assert paths(take(tmp_path, "pytest -q")) == [
        "pkg/conftest.py", "pyproject.toml", "test_a.py", "tests/b_test.py", "tests/data.json", "tests/helpers.py",
    ]  # fmt: skip
    assert "poetry.lock" in paths(take(tmp_path, "pytest -q", protect=("*.lock",)))


def test_protect_takes_globs_and_an_exclamation_mark_takes_files_out(tmp_path: Path) -> None:
    for name in ("data/a/x.csv", "data/y.csv", "build/z.csv", "check.sh", "lib/check_lib.sh"):
        write(tmp_path, name)
    assert paths(take(tmp_path, protect=("data/**/*.csv",))) == ["check.sh", "data/a/x.csv", "data/y.csv"]
    assert paths(take(tmp_path, protect=("data", "!data/a"))) == ["check.sh", "data/y.csv"]
    assert paths(take(tmp_path, protect=("build/",))) == ["build/z.csv", "check.sh"]
    assert paths(take(tmp_path, protect=("*.sh", "!check.sh"))) == ["lib/check_lib.sh"]
    assert take(tmp_path, protect=("nope/*",)).notes == ("protect: nope/* matches no file",)


@pytest.mark.requirement("DONE-14")
def test_cases_whose_names_cannot_be_listed_are_named_as_not_frozen(tmp_path: Path) -> None:
    write(tmp_path, "check.sh", 'for case in cases/*; do cat "$case"; done\n')
    for name in (b"plain", b"two\nlines", b"\xff"):
        (tmp_path / "cases").mkdir(exist_ok=True)
        Path(os.fsdecode(os.fsencode(tmp_path / "cases") + b"/" + name)).touch()
    manifest = take(tmp_path, "sh check.sh")
    assert paths(manifest) == ["cases/plain", "check.sh"]
    [note] = manifest.notes
    assert note.startswith("'cases/two\\nlines', 'cases/\\udcff': not frozen, because the name is not UTF-8")


def test_the_artifact_under_review_is_never_pinned(tmp_path: Path) -> None:
    write(tmp_path, "report.md")
    write(tmp_path, "judge.sh")
    assert paths(discovery.find(str(tmp_path), commands=["./judge.sh report.md"], exempt=("report.md",))) == [
        "judge.sh"
    ]


@pytest.mark.case("ART-04")
def test_pipes_devices_and_folders_named_by_a_command_are_neither_pinned_nor_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sh")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder.d").mkdir()
    manifest = take(tmp_path, "sh ./pipe.sh ./zero folder.d /dev/zero", protect=("*",))
    assert paths(manifest) == []
    assert paths(manifest, "symlink") == ["zero"]


def test_a_link_is_pinned_beside_the_file_that_it_leads_to_and_one_that_leaves_is_told(
    tmp_path: Path,
) -> None:
    root = tmp_path / "w"
    write(root, "real/check.py")
    write(tmp_path, "out.sh")
    (root / "check.py").symlink_to("real/check.py")
    (root / "out.sh").symlink_to("../out.sh")
    manifest = take(root, "python check.py && ./out.sh")
    assert paths(manifest) == ["real/check.py"]
    assert paths(manifest, "symlink") == ["check.py", "out.sh"]
    assert any("out.sh" in note and "outside" in note for note in manifest.notes)


def test_a_link_that_turns_in_a_circle_ends(tmp_path: Path) -> None:
    (tmp_path / "a.sh").symlink_to("b.sh")
    (tmp_path / "b.sh").symlink_to("a.sh")
    assert paths(take(tmp_path, "sh a.sh")) == []


def test_too_many_files_are_a_clear_error_that_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "PIN_LIMIT", 3)
    for number in range(5):
        write(tmp_path, f"tests/test_{number}.py")
    with pytest.raises(WorkspaceFault, match="more than 3 files") as caught:
        take(tmp_path, "pytest")
    assert "'!tests'" in caught.value.next_step


def test_too_many_bytes_are_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_pins, "PIN_LIMIT_BYTES", 10)
    write(tmp_path, "big.sh", "x" * 11)
    with pytest.raises(WorkspaceFault, match="11 bytes would be pinned"):
        take(tmp_path, "sh big.sh")


# --- how it stands


@pytest.mark.requirement("DONE-14")
def test_the_digest_is_the_manifests_own_as_long_as_nothing_changed(work: Path) -> None:
    manifest = take(work)
    check = pins.compare(manifest, str(work))
    assert (check.digest, check.is_intact) == (manifest.digest, True)
    write(work, "parser.py", "better\n")
    write(work, "new.txt")
    assert pins.compare(manifest, str(work)).digest == manifest.digest


def append(path: Path) -> None:
    path.write_text(path.read_text() + "exit 0\n")


def swap_for_link(path: Path) -> None:
    other = path.with_name("other")
    path.rename(other)
    path.symlink_to("other")


def swap_parent(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.symlink_to("moved")


def swap_for_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def swap_for_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def swap_for_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES = [append, Path.unlink, swap_for_link, swap_parent, swap_for_pipe, swap_for_device, swap_for_folder]


@pytest.mark.case("VAL-08", "ART-04")
@pytest.mark.requirement("DONE-14")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_every_way_to_change_a_pinned_file_is_seen_and_undone_and_nothing_is_lost(
    work: Path, frozen: str, change: object
) -> None:
    manifest = take(work)
    pins.pin(frozen, manifest, str(work))
    before = (work / "lib/cases.sh").read_bytes()
    assert callable(change)
    change(work / "lib/cases.sh")
    check = pins.compare(manifest, str(work))
    assert check.changed == ("lib/cases.sh",)
    assert check.digest != manifest.digest
    kept = len(list(work.rglob("*")))
    assert restoration.restore(manifest, str(work), frozen_path=frozen).paths == ("lib/cases.sh",)
    assert pins.compare(manifest, str(work)).digest == manifest.digest
    assert (work / "lib/cases.sh").read_bytes() == before
    assert len(list(work.rglob("*"))) >= kept


def test_a_mode_without_the_execute_bit_is_a_change_and_comes_back(work: Path, frozen: str) -> None:
    manifest = take(work)
    pins.pin(frozen, manifest, str(work))
    (work / "check.sh").chmod(0o644)
    assert pins.compare(manifest, str(work)).changed == ("check.sh",)
    restoration.restore(manifest, str(work), frozen_path=frozen)
    assert (work / "check.sh").stat().st_mode & 0o777 == 0o755


def test_group_and_other_bits_are_no_change_since_checkouts_differ_in_them(work: Path) -> None:
    manifest = take(work)
    (work / "lib/cases.sh").chmod(0o600)
    assert pins.compare(manifest, str(work)).is_intact


@pytest.mark.requirement("DONE-15")
def test_new_tests_are_welcome_and_what_a_runner_loads_by_itself_tampers(tmp_path: Path) -> None:
    write(tmp_path, "tests/test_a.py")
    manifest = take(tmp_path, "pytest")
    write(tmp_path, "tests/test_new.py")
    write(tmp_path, "more/test_newer.py")
    write(tmp_path, "node_modules/x/conftest.py")
    assert pins.compare(manifest, str(tmp_path)).is_intact
    write(tmp_path, "more/conftest.py")
    write(tmp_path, "pytest.ini")
    (tmp_path / "pytest").mkdir()
    assert pins.compare(manifest, str(tmp_path)).added == ("more/conftest.py", "pytest", "pytest.ini")


def test_a_new_link_to_a_folder_with_a_conftest_tampers(tmp_path: Path) -> None:
    root = tmp_path / "w"
    write(root, "test_a.py")
    write(tmp_path, "evil/conftest.py")
    manifest = take(root, "pytest")
    (root / "more").symlink_to("../evil")
    assert pins.compare(manifest, str(root)).added == ("more/conftest.py",)


def test_an_existing_link_to_a_folder_with_a_conftest_is_pinned_itself(tmp_path: Path) -> None:
    root = tmp_path / "w"
    write(root, "test_a.py")
    write(tmp_path, "shared/conftest.py")
    (root / "shared").symlink_to("../shared")
    manifest = take(root, "pytest")
    assert pins.compare(manifest, str(root)).is_intact
    (root / "shared").unlink()
    (root / "shared").symlink_to("../other")
    assert pins.compare(manifest, str(root)).changed == ("shared",)


def test_two_changes_give_two_digests_and_the_same_change_the_same(work: Path) -> None:
    manifest = take(work)
    write(work, "check.sh", "one", mode=0o755)
    first = pins.compare(manifest, str(work)).digest
    assert pins.compare(manifest, str(work)).digest == first
    write(work, "lib/cases.sh", "two")
    assert pins.compare(manifest, str(work)).digest != first


def test_a_workspace_that_is_gone_is_a_fault_and_no_verdict(work: Path) -> None:
    manifest = take(work)
    work.rename(work.with_name("moved"))
    with pytest.raises(WorkspaceFault, match="cannot be opened"):
        pins.compare(manifest, str(work))


# --- the cache


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock a minute ahead: what was just written is old enough to be believed."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 60_000_000_000)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are really read, in order."""
    seen: list[str] = []
    real = pins.digest_of_file

    def counted(root_path: str, path: str, *more: Any) -> str:
        seen.append(path)
        return real(root_path, path, *more)

    monkeypatch.setattr(pins, "digest_of_file", counted)
    return seen


def test_an_unmoved_file_is_not_read_twice(work: Path, tmp_path: Path, hashed: list[str], aged: None) -> None:
    manifest, cache = take(work), str(tmp_path / "cache")
    for _ in range(3):
        assert pins.compare(manifest, str(work), cache_path=cache).is_intact
    assert hashed == ["check.sh", "lib/cases.sh"]


def test_a_change_that_puts_its_old_time_and_size_back_is_seen(
    work: Path, tmp_path: Path, hashed: list[str], aged: None
) -> None:
    manifest, cache = take(work), str(tmp_path / "cache")
    path = work / "lib/cases.sh"
    status = path.stat()
    pins.compare(manifest, str(work), cache_path=cache)
    path.write_text("fals\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    assert pins.compare(manifest, str(work), cache_path=cache).changed == ("lib/cases.sh",)


def test_a_time_as_new_as_the_look_proves_nothing_and_is_not_kept(
    work: Path, tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: (work / "check.sh").stat().st_ctime_ns)
    manifest, cache = take(work), str(tmp_path / "cache")
    for _ in range(2):
        pins.compare(manifest, str(work), cache_path=cache)
    assert hashed.count("check.sh") == 2


def test_an_addition_is_seen_although_the_folders_were_cached(work: Path, tmp_path: Path, aged: None) -> None:
    write(work, "tests/test_a.py")
    manifest, cache = take(work, "pytest"), str(tmp_path / "cache")
    for _ in range(2):
        assert pins.compare(manifest, str(work), cache_path=cache).is_intact
    write(work, "lib/conftest.py")
    assert pins.compare(manifest, str(work), cache_path=cache).added == ("lib/conftest.py",)
    (work / "lib/conftest.py").unlink()
    assert pins.compare(manifest, str(work), cache_path=cache).is_intact


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"key":[],"files":1}', b"\xff"])
def test_a_broken_cache_is_none(work: Path, tmp_path: Path, content: bytes) -> None:
    manifest, cache = take(work), tmp_path / "cache"
    cache.write_bytes(content)
    assert pins.compare(manifest, str(work), cache_path=str(cache)).is_intact


def test_a_cache_of_another_manifest_is_not_believed(work: Path, tmp_path: Path, aged: None) -> None:
    manifest, cache = take(work), tmp_path / "cache"
    pins.compare(manifest, str(work), cache_path=str(cache))
    found = json.loads(cache.read_text())
    found["files"]["check.sh"][-1] = "of another time"
    cache.write_text(json.dumps(found))
    assert pins.compare(manifest, str(work), cache_path=str(cache)).changed == ("check.sh",)
    found["key"][0] = "another manifest"
    cache.write_text(json.dumps(found))
    assert pins.compare(manifest, str(work), cache_path=str(cache)).is_intact


def test_a_folder_swapped_for_a_link_to_the_same_files_is_seen_although_they_were_cached(
    work: Path, tmp_path: Path, aged: None
) -> None:
    manifest, cache = take(work), str(tmp_path / "cache")
    pins.compare(manifest, str(work), cache_path=cache)
    swap_parent(work / "lib/cases.sh")
    assert pins.compare(manifest, str(work), cache_path=cache).changed == ("lib/cases.sh",)


# --- frozen copies


def test_the_manifest_comes_back_as_it_was_by_its_digest_and_as_the_newest(work: Path, frozen: str) -> None:
    first = take(work)
    pins.pin(frozen, first, str(work))
    write(work, "check.sh", "new", mode=0o755)
    second = take(work)
    pins.pin(frozen, second, str(work))
    assert pins.load_manifest(frozen) == second
    assert pins.load_manifest(frozen, first.digest) == first


def test_a_changed_or_missing_manifest_is_not_believed(work: Path, frozen: str) -> None:
    manifest = take(work)
    with pytest.raises(StateUntrusted, match="is missing") as caught:
        pins.load_manifest(frozen)
    assert f"omx-autoresearch amend {Path(frozen).parent.name} " in caught.value.next_step
    pins.pin(frozen, manifest, str(work))
    path = Path(frozen, "manifest.json")
    path.write_text(path.read_text().replace("check.sh", "other.sh"))
    with pytest.raises(StateUntrusted, match="digest"):
        pins.load_manifest(frozen)
    path.write_text('{"pins": 3}')
    with pytest.raises(StateUntrusted):
        pins.load_manifest(frozen)


def test_a_file_that_changes_between_pinning_and_freezing_is_an_error(work: Path, frozen: str) -> None:
    manifest = take(work)
    write(work, "check.sh", "changed")
    with pytest.raises(WorkspaceFault, match="changed while it was being frozen"):
        pins.pin(frozen, manifest, str(work))


def test_a_frozen_copy_that_a_crash_cut_short_is_written_again(work: Path, frozen: str) -> None:
    manifest = take(work)
    pins.pin(frozen, manifest, str(work))
    copy = Path(pins.copies_of(manifest, str(work), frozen)[0][1])
    whole = copy.read_bytes()
    copy.write_bytes(whole[:3])
    pins.pin(frozen, manifest, str(work))
    assert copy.read_bytes() == whole


@pytest.mark.requirement("DONE-25")
def test_equal_files_have_a_copy_each_with_the_time_of_its_original(work: Path, frozen: str) -> None:
    """A command may compare inodes (`test -ef`) and times (make, `test -nt`)."""
    for number, name in enumerate(("lib/a.sh", "lib/b.sh")):
        os.utime(write(work, name, "true\n"), (1_000_000 + number, 1_000_000 + number))
    manifest = take(work, protect=("lib",))
    pins.pin(frozen, manifest, str(work))
    copies = dict(pins.copies_of(manifest, str(work), frozen))
    first, second = (os.stat(copies[str(work.resolve() / "lib" / name)]) for name in ("a.sh", "b.sh"))
    assert first.st_ino != second.st_ino
    assert (first.st_mtime, second.st_mtime) == (1_000_000, 1_000_001)


def test_the_copies_of_an_older_version_are_taken_over(work: Path, frozen: str) -> None:
    manifest = take(work)
    pins.pin(frozen, manifest, str(work))
    for pin in manifest.pins:
        suffix = ".x" if pin.mode & 0o100 else ""
        Path(pins.copy_path(frozen, pin)).rename(Path(frozen, f"{pin.sha256}{suffix}"))
    copies = dict(pins.copies_of(manifest, str(work), frozen))
    assert pins.changed_copies(manifest, frozen) == ()
    assert Path(copies[str(work.resolve() / "lib/cases.sh")]).read_text() == "true\n"
    write(work, "check.sh", "exit 0")
    restoration.restore(manifest, str(work), frozen_path=frozen)
    assert (work / "check.sh").read_text().startswith("#!/bin/sh\n. ./lib")


def test_a_changed_frozen_copy_restores_nothing(work: Path, frozen: str) -> None:
    manifest = take(work)
    pins.pin(frozen, manifest, str(work))
    write(work, "check.sh", "exit 0")
    copies = dict(pins.copies_of(manifest, str(work), frozen))
    Path(copies[str(work.resolve() / "check.sh")]).write_text("exit 0")
    with pytest.raises(StateUntrusted, match="frozen copy") as caught:
        restoration.restore(manifest, str(work), frozen_path=frozen)
    assert f"omx-autoresearch amend {Path(frozen).parent.name} " in caught.value.next_step
    assert (work / "check.sh").read_text() == "exit 0"


def test_restoring_moves_what_stood_there_aside_where_git_does_not_see_it(work: Path, frozen: str) -> None:
    write(work, "tests/test_a.py", "old")
    manifest = discovery.find(str(work), commands=["pytest"])
    pins.pin(frozen, manifest, str(work))
    write(work, "tests/test_a.py", "mine")
    write(work, "conftest.py", "forged")
    assert restoration.restore(manifest, str(work), frozen_path=frozen).paths == (
        "conftest.py",
        "tests/test_a.py",
    )
    aside = work / restoration.ASIDE_PATH
    assert (aside / ".gitignore").read_text() == "*\n"
    assert sorted(path.read_text() for path in (aside / "1").iterdir()) == ["forged", "mine"]
    assert restoration.restore(manifest, str(work), frozen_path=frozen).paths == ()


def test_restoring_never_writes_through_a_link_that_leaves(work: Path, frozen: str, tmp_path: Path) -> None:
    manifest = take(work)
    pins.pin(frozen, manifest, str(work))
    outside = tmp_path / "outside"
    outside.mkdir()
    (work / "lib/cases.sh").unlink()
    (work / "lib").rmdir()
    (work / "lib").symlink_to(outside)
    restoration.restore(manifest, str(work), frozen_path=frozen)
    assert list(outside.iterdir()) == []
    assert (work / "lib/cases.sh").read_text() == "true\n"


def test_a_link_in_place_of_our_folder_is_refused(work: Path, frozen: str, tmp_path: Path) -> None:
    manifest = take(work)
    pins.pin(frozen, manifest, str(work))
    (work / "check.sh").unlink()
    (work / ".omx").symlink_to(tmp_path)
    with pytest.raises(WorkspaceFault, match="symbolic link"):
        restoration.restore(manifest, str(work), frozen_path=frozen)


def test_a_pinned_link_comes_back(tmp_path: Path, frozen: str) -> None:
    root = tmp_path / "w"
    write(root, "real/check.py")
    (root / "check.py").symlink_to("real/check.py")
    manifest = take(root, "python check.py")
    pins.pin(frozen, manifest, str(root))
    (root / "check.py").unlink()
    write(root, "check.py", "exit 0")
    assert restoration.restore(manifest, str(root), frozen_path=frozen).paths == ("check.py",)
    assert os.readlink(root / "check.py") == "real/check.py"


def test_a_guard_alone_freezes_nothing() -> None:
    assert PinManifest((Pin("pytest.ini", "absent-guard"),)).frozen_count == 0
