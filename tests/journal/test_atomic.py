"""Files that are old or new, never half; strict JSON; locks."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omx_autoresearch.foundation.errors import StateUntrusted, StorageFailed
from omx_autoresearch.journal.safe_files import (
    Lock,
    disk_refused,
    ensure_folder,
    load_json,
    read_bounded,
    replace_file,
    sweep_temporary,
)


def test_a_replaced_file_holds_the_new_content_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    replace_file(str(path), b"old")
    replace_file(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["status.json"]


@pytest.mark.parametrize("failing", ["fsync", "rename", "write"])
def test_a_failed_replacement_keeps_the_old_content_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(StorageFailed, match="ENOSPC") as caught:
        replace_file(str(path), b"new")
    monkeypatch.undo()
    assert "free space" in caught.value.next_step
    assert str(path) in caught.value.message
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["status.json"]


def test_an_interrupt_while_replacing_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        replace_file(str(tmp_path / "x"), b"new")
    assert os.listdir(tmp_path) == []


@pytest.mark.case("STA-04")
def test_a_file_size_limit_leaves_the_old_content_whole_and_the_next_write_works(tmp_path: Path) -> None:
    path = str(tmp_path / "progress.json")
    replace_file(path, b"old")
    code = (
        "import resource, sys\n"
        "from omx_autoresearch.journal.safe_files import replace_file\n"
        "from omx_autoresearch.foundation.errors import StorageFailed\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))\n"
        "try: replace_file(sys.argv[1], b'n' * 5000)\n"
        "except StorageFailed as error: print(error)\n"
        "print(open(sys.argv[1]).read())\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))\n"
        "replace_file(sys.argv[1], b'n' * 5000)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert "EFBIG" in ran.stdout
    assert ran.stdout.endswith("old\n")
    assert Path(path).read_bytes() == b"n" * 5000
    assert os.listdir(tmp_path) == ["progress.json"]


@pytest.mark.case("STA-05")
def test_what_killed_writers_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    program = (
        "import os, sys; from omx_autoresearch.journal import safe_files as atomic;"
        "atomic.write_all = lambda *_: os.kill(os.getpid(), 9); atomic.replace_file(sys.argv[1], b'x')"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "status.json")], check=False)
    assert killed.returncode == -9
    (left,) = os.listdir(tmp_path)
    kept = [
        f".{os.getpid()}-1-abcd.tmp",
        "status.json",
        ".tmp",
        ".x-1-2.tmp",
        ".1-2.tmp",
        f".{'9' * 30}-1-2.tmp",
    ]
    for name in kept:
        (tmp_path / name).touch()
    assert sweep_temporary(str(tmp_path)) == (left,)
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
    assert sweep_temporary(str(tmp_path / "missing")) == ()


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "link").symlink_to("victim")
    replace_file(str(tmp_path / "link"), b"new")
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "link").is_symlink()


def test_a_missing_folder_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="ENOENT") as caught:
        replace_file(str(tmp_path / "no" / "x"), b"")
    assert caught.value.next_step


def test_folders_are_made_with_their_parents_and_an_existing_one_is_left_alone(tmp_path: Path) -> None:
    ensure_folder(str(tmp_path / "a" / "b"))
    ensure_folder(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed, match="make the folder"):
        ensure_folder(str(tmp_path / "file" / "x"))


def test_a_file_larger_than_the_limit_or_no_file_at_all_is_an_error_and_never_a_hang(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert read_bounded(str(path), 5) == b"12345"
    with pytest.raises(StateUntrusted, match="larger than 4"):
        read_bounded(str(path), 4)
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(StateUntrusted, match="not a regular file"):
            read_bounded(str(tmp_path / name), 5)
    with pytest.raises(FileNotFoundError):
        read_bounded(str(tmp_path / "absent"), 5)


def _json(tmp_path: Path, data: bytes) -> object:
    path = tmp_path / "file.json"
    path.write_bytes(data)
    try:
        return load_json(str(path))
    finally:
        assert path.read_bytes() == data


@pytest.mark.case("ART-01")
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"passed":false,"status":"failed","passed":true}', "passed"),
        ('{"passed":true,"architect_review":{"verdict":"no","verdict":"approved"}}', "verdict"),
        (r'{"passed":false,"p\u0061ssed":true}', "passed"),
    ],
)
def test_a_duplicate_key_is_an_error_that_names_the_key(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(StateUntrusted, match=f"'{key}' is given twice"):
        _json(tmp_path, text.encode())


@pytest.mark.case("ART-06")
def test_an_empty_or_cut_file_is_an_error_and_its_correct_rewrite_is_read(tmp_path: Path) -> None:
    whole = b'{"passed": true, "summary": "all"}'
    with pytest.raises(StateUntrusted, match=r"file\.json cannot be trusted: it is empty"):
        _json(tmp_path, b"")
    for cut in range(1, len(whole)):
        with pytest.raises(StateUntrusted, match="not JSON"):
            _json(tmp_path, whole[:cut])
    replace_file(str(tmp_path / "file.json"), whole)
    assert load_json(str(tmp_path / "file.json")) == {"passed": True, "summary": "all"}


@pytest.mark.case("HIO-09")
def test_a_byte_order_mark_is_accepted_and_utf_16_is_named(tmp_path: Path) -> None:
    assert _json(tmp_path, b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        with pytest.raises(StateUntrusted, match=r"file\.json .*UTF-16.*save it as UTF-8"):
            _json(tmp_path, '{"a": 1}'.encode(encoding))
    with pytest.raises(StateUntrusted, match="UTF-32"):
        _json(tmp_path, '{"a": 1}'.encode("utf-32"))


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b"\xff\xfe\xfd",
        b"[" * 100_000,
        b"\0" * 40,
        b"{} {}",
        b" ",
    ],
)
def test_what_is_no_strict_json_is_an_error_that_names_the_file(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(StateUntrusted, match=r"file\.json cannot be trusted"):
        _json(tmp_path, data)


def test_a_held_lock_is_an_error_that_names_the_holder(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    code = (
        "import sys\nfrom omx_autoresearch.journal.safe_files import Lock\n"
        "with Lock(sys.argv[1]):\n  print('held', flush=True)\n  sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StorageFailed) as caught, Lock(path, wait_seconds=0.01):
            pass
        if os.path.exists("/proc/locks"):
            assert f"process {holder.pid}" in caught.value.message
        holder.kill()
    with Lock(path, wait_seconds=10):
        pass  # a killed holder holds nothing


def test_a_lock_file_that_is_removed_while_somebody_waits_excludes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "lock")
    real = fcntl.flock
    removed: list[bool] = []

    def remove_after(descriptor: int, operation: int) -> None:
        real(descriptor, operation)
        if not removed:
            os.unlink(path)
            removed.append(True)

    monkeypatch.setattr(fcntl, "flock", remove_after)
    with Lock(path), pytest.raises(StorageFailed), Lock(path, wait_seconds=0):
        pass


def test_a_lock_that_cannot_be_made_says_where(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match=r"Could not lock .*ENOENT"), Lock(str(tmp_path / "no" / "lock")):
        pass


def test_the_lock_is_not_inherited_by_a_child(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with Lock(path):
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    with Lock(path, wait_seconds=0):
        child.communicate()


def test_a_disk_that_takes_no_more_is_told_from_every_other_fault() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with (
        pytest.raises(OSError, match="No space left") as full,
        open("/dev/full", "wb", buffering=0) as stream,
    ):
        stream.write(b"x")
    refused = disk_refused(full.value)
    assert refused is not None
    assert "ENOSPC" in refused.message
    assert refused.next_step.startswith("free space on the disk")
    with pytest.raises(OSError, match="No such file") as missing, open("/nowhere/at/all", "rb"):
        pass
    assert disk_refused(missing.value) is None
    assert disk_refused(ValueError("no")) is None
