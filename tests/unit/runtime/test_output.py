"""Output files keep what they are: links, modes, pipes; errors name the file that they are about."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from inlaid.driver.shadow import Difference
from inlaid.passes.manager import Dump, UnitPass
from inlaid_runtime.errors import InputError, OutputError
from inlaid_runtime.execution.output import check_output, replacing, write_files, write_text
from inlaid_runtime.execution.profile import Profile

DIFFERENCE = Difference("main", "lab", "add", (), "wrong", {"x": np.zeros(2)})


def dump(path: Path) -> None:
    """Write the first file of a dump of passes."""
    path.rename(path.with_name("00-input.txt"))
    step = UnitPass[str]("fold", lambda unit: unit)
    try:
        Dump(path.parent, str).before(step, "unit")
    finally:
        path.with_name("00-input.txt").rename(path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "old").write_text("old")
    for name, target in (("link", "data/old"), ("chain", "link"), ("dangling", "data/new")):
        (tmp_path / name).symlink_to(target)
        write_text(tmp_path / name, name)
        assert os.readlink(tmp_path / name) == target
        assert (tmp_path / "data" / Path(target if "/" in target else "data/old").name).read_text() == name
    assert names(tmp_path / "data") == ["new", "old"]
    (tmp_path / "lost").symlink_to("nowhere/file")
    with pytest.raises(OutputError, match=r"cannot write .*/lost: No such file.*; create the folder .*/nowhere, or"):
        write_text(tmp_path / "lost", "x")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError, match=r"cannot write .*/loop: Too many levels of symbolic links") as caught:
        write_text(tmp_path / "loop", "x")
    assert caught.value.errno == errno.ELOOP and (tmp_path / "loop").is_symlink()


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755, 0o444])
def test_a_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(mode)
    with replacing(path) as file:
        (temporary,) = (each for each in tmp_path.iterdir() if each != path)
        assert stat.S_IMODE(temporary.stat().st_mode) == mode  # also while the content is written
        file.write(b"new")
    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_text(tmp_path / "new", "x")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("write", [Profile((), 1.0).save_chrome_trace, DIFFERENCE.save, dump, lambda path: write_text(path, "x")])
def test_pipes_and_folders_are_refused(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "path"
    os.mkfifo(path)
    with pytest.raises(InputError, match=r"cannot write .*: it is a device, a pipe or a socket"):
        write(path)
    assert path.is_fifo()
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match=r"cannot write .*: it is a folder"):
        write(path)
    assert path.is_dir() and names(tmp_path) == ["path"]


def test_devices_are_refused() -> None:
    ends = os.openpty()  # a device in a file system in which nothing can be replaced, should the check fail
    try:
        path = Path(os.ttyname(ends[1]))
        with pytest.raises(InputError, match=f"cannot write {path}: it is a device"):
            write_text(path, "x")
        assert path.is_char_device()
    finally:
        for end in ends:
            os.close(end)


def test_standard_output_in_a_file_stays_the_same_file(tmp_path: Path) -> None:
    script = """if True:
        import sys
        from pathlib import Path
        from inlaid_runtime.execution.output import write_text
        write_text(Path(sys.argv[1]), "content")
        if len(sys.argv) > 2:
            print("longer than the content")"""
    link, path = tmp_path / "stdout", tmp_path / "file"
    link.symlink_to("/proc/self/fd/1")  # as /dev/stdout
    for arguments, expected in (((), "content"), (("print",), "longer than the content\n")):
        with path.open("wb") as file:
            subprocess.run([sys.executable, "-c", script, str(link), *arguments], stdout=file, check=True, timeout=60)
            assert os.path.samestat(os.fstat(file.fileno()), path.stat())
        assert path.read_text() == expected
    assert os.readlink(link) == "/proc/self/fd/1" and names(tmp_path) == ["file", "stdout"]


@pytest.mark.parametrize("length", [243, 250, 255])
def test_long_names(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("n" * length)
    for text in ("first", "second"):
        write_text(path, text)
        assert path.read_text() == text
    assert names(tmp_path) == [path.name]


def test_names_that_are_too_long(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 256)
    for write in (lambda: write_text(path, "x"), lambda: check_output(path)):
        with pytest.raises(OutputError, match="File name too long; choose a shorter name") as caught:
            write()
        assert caught.value.errno == errno.ENAMETOOLONG
    assert names(tmp_path) == []


def test_a_mount_point_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(source: str, target: str) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), source, None, target)

    path = tmp_path / "mounted"
    path.write_text("old content")
    before = path.stat()
    monkeypatch.setattr(os, "replace", replace)
    write_text(path, "new")
    assert path.read_text() == "new" and path.stat().st_ino == before.st_ino
    assert names(tmp_path) == ["mounted"]


def test_errors_have_number_and_file(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "file"
    with pytest.raises(OutputError) as caught:
        write_text(path, "x")
    error = caught.value
    assert (error.errno, error.strerror, error.filename) == (errno.ENOENT, "No such file or directory", str(path))
    assert str(error).startswith(f"cannot write {path}: No such file or directory; create the folder {path.parent}")


def test_errors_about_other_files_are_not_blamed_on_the_output(tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    for name in (str(other), os.fsencode(other)):
        with pytest.raises(FileNotFoundError) as caught, replacing(path):
            os.stat(name)
        assert caught.value.filename == name

    def chunks() -> Iterator[bytes]:
        yield other.read_bytes()

    with pytest.raises(FileNotFoundError):
        write_files({path: [b"x"], tmp_path / "second": chunks()})
    with (
        pytest.raises(OutputError, match=r"cannot write .*/file: No space left on device, [0-9]+ bytes are free in"),
        replacing(path),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert names(tmp_path) == []
