# SPDX-License-Identifier: BSD-3-Clause
"""How many threads there are by default (case 38): quotas of control groups, real ones where this machine lets us make some, and described
by files as the kernel's documentation has them."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MOUNT = "sys/fs/cgroup"
SANITIZERS = "-g -fsanitize=address,undefined -fno-sanitize-recover=all"
# What a system with version 1 has before the line that counts.
OTHER = "9:name=systemd:/user.slice\n8:cpuset:/set\n7:cpuacct:/account\n"


def ask(build: Callable[..., Path], folder: Path, files: dict[str, str | bytes], cpus: int = 8, cflags: str = "") -> int:
    """Threads of a machine that has these files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    program = build("sse2", cflags=cflags) if cflags else build("sse2")
    run = subprocess.run([program / "tool_cpus", folder, str(cpus)], capture_output=True, text=True, check=False)
    assert run.returncode == 0 and run.stderr == "", run.stderr
    return int(run.stdout)


def version2(group: str, **quotas: str) -> dict[str, str]:
    """Files of a process in a group of version 2; quotas by name, where __ is a slash and root the top."""
    files = {f"{MOUNT}/{'' if name == 'root' else name.replace('__', '/')}/cpu.max": text for name, text in quotas.items()}
    return {"proc/self/cgroup": f"0::{group}\n"} | files


def version1(lines: str, **quotas: tuple[str, str]) -> dict[str, str]:
    """The same for version 1: quota and period of each group."""
    files = {"proc/self/cgroup": lines}
    for name, (limit, period) in quotas.items():
        group = f"{MOUNT}/cpu/{'' if name == 'root' else name.replace('__', '/')}"
        files |= {f"{group}/cpu.cfs_quota_us": limit, f"{group}/cpu.cfs_period_us": period}
    return files


@pytest.mark.parametrize(
    "files, cpus, threads",
    [
        # No control groups, or none that limits.
        ({}, 8, 8),
        ({"proc/self/cgroup": "0::/\n"}, 8, 8),
        (version2("/a", a="max 100000\n"), 8, 8),
        # Rounded down, at least 1; never more than the affinity.
        (version2("/a", a="50000 100000\n"), 8, 1),
        (version2("/a", a="100000 100000\n"), 8, 1),
        (version2("/a", a="199999 100000\n"), 8, 1),
        (version2("/a", a="250000 100000\n"), 8, 2),
        (version2("/a", a="30000 10000\n"), 8, 3),
        (version2("/a", a="400000 100000\n"), 2, 2),
        (version2("/a", a="800000 100000\n"), 8, 8),
        (version2("/a", a="900000 100000\n"), 8, 8),
        # The tightest of the group and those above it counts, wherever it is.
        (version2("/a/b", a="300000 100000\n", a__b="max 100000\n"), 8, 3),
        (version2("/a/b", a="300000 100000\n", a__b="200000 100000\n"), 8, 2),
        (version2("/a/b", a="200000 100000\n", a__b="300000 100000\n"), 8, 2),
        (version2("/a/b/c", a="500000 100000\n"), 8, 5),
        (version2("/a", root="300000 100000\n"), 8, 3),
        (version2("/", root="300000 100000\n"), 8, 3),
        # Not that of a neighbour or of a group below.
        (version2("/a", b="100000 100000\n", a__b="100000 100000\n"), 8, 8),
        # A container that sees its group as the root while /proc names it as the host does, or outside of its namespace.
        (version2("/docker/0123", root="200000 100000\n"), 8, 2),
        (version2("/../other", root="200000 100000\n"), 8, 2),
        # A name with colons and spaces, and one that the kernel has marked.
        (version2("/a b:c", **{"a b:c": "300000 100000\n"}), 8, 3),
        (version2("/a/gone (deleted)", a="300000 100000\n"), 8, 3),
        # Version 1: its own group and those above it; -1 is no limit.
        (version1("1:cpu:/\n", root=("-1\n", "100000\n")), 8, 8),
        (version1("1:cpu:/\n", root=("250000\n", "100000\n")), 8, 2),
        (version1(OTHER + "1:cpu:/a\n", a=("50000\n", "100000\n")), 8, 1),
        (version1(OTHER + "4:cpu,cpuacct:/a/b\n0::/x\n", a=("300000\n", "100000\n"), a__b=("-1\n", "100000\n")), 8, 3),
        (version1(OTHER + "4:cpuacct,cpu:/a\n", a=("150000\n", "50000\n")), 8, 3),
        (version1("4:cpu:/docker/0123\n", root=("400000\n", "100000\n")), 8, 4),
        # The groups of other controllers, and of version 2 where the quota is one of version 1, are others.
        (version1(OTHER + "1:cpu:/a\n0::/x\n", account=("100000\n", "100000\n"), x=("100000\n", "100000\n")), 8, 8),
        (version1("1:cpuset:/a\n", a=("100000\n", "100000\n")), 8, 8),
        # Half a file.
        ({"proc/self/cgroup": "1:cpu:/\n", f"{MOUNT}/cpu/cpu.cfs_quota_us": "100000\n"}, 8, 8),
        ({"proc/self/cgroup": "1:cpu:/\n", f"{MOUNT}/cpu/cpu.cfs_period_us": "100000\n"}, 8, 8),
        # The line of the group stands behind others that are longer than a page.
        ({**version2("/a", a="300000 100000\n"), "proc/self/cgroup": f"7:memory:/{'m' * 9000}\n0::/a\n"}, 8, 3),
    ],
)  # fmt: skip
def test_quota(files: dict[str, str], cpus: int, threads: int, build: Callable[..., Path], tmp_path: Path) -> None:
    assert ask(build, tmp_path, files, cpus) == threads


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "\n",
            "max\n",
            "max max\n",
            "maximum 100000\n",
            "100000\n",
            "100000 \n",
            "100000 0\n",
            "0 100000\n",
            "-1 100000\n",
            "abc def\n",
        ),
        *("100000 -100000\n", "-100000 -100000\n", "nan nan\n", "1e5 100000\n", "100000,100000\n", "\0" * 40, b"\xff" * 5000),
        *("9223372036854775807 1\n", "9" * 40 + " 1\n", "-" + "9" * 40 + " 1\n"),
    ],
    ids=repr,
)
def test_malformed_quota(text: str | bytes, build: Callable[..., Path], tmp_path: Path) -> None:
    """What is no quota limits nothing."""
    files: dict[str, str | bytes] = {"proc/self/cgroup": "0::/a\n1:cpu:/a\n", f"{MOUNT}/a/cpu.max": text}
    first = text.split()[0] if text.split() else text
    files |= {f"{MOUNT}/cpu/a/cpu.cfs_quota_us": first, f"{MOUNT}/cpu/a/cpu.cfs_period_us": "0\n"}
    assert ask(build, tmp_path, files) == 8


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "\n",
            "0",
            "0:",
            "0::",
            "0::\n",
            "0::a\n",
            ":::\n",
            "::/a\n",
            "0:/a\n",
            "x::/a\n",
            "00::/a\n",
            "1::/a\n",
            "1:cp:/a\n",
            "1:cpus:/a\n",
        ),
        *(
            "1:,:/a\n",
            "1:memory,cpuset:/a\n",
            "0::/a",
            "1:cpu:/a",
            f"0::/{'x' * 20000}\n",
            f"0::{'/x' * 8000}\n",
            "/\n" * 5000,
            b"\xff:\xff:/\xff\n",
        ),
    ],
    ids=lambda text: repr(text[:24]),
)
def test_malformed_group(text: str | bytes, build: Callable[..., Path], tmp_path: Path) -> None:
    """A line that names no group of the CPU, or is cut off, leads to no quota; the root's still holds."""
    files = version2("", a="100000 100000\n", root="max 100000\n") | version1("", a=("100000\n", "100000\n"))
    files["proc/self/cgroup"] = text
    assert ask(build, tmp_path, files) == 8
    assert ask(build, tmp_path, {f"{MOUNT}/cpu.max": "300000 100000\n"}) == 3


def test_any_text_under_sanitizers(build: Callable[..., Path], tmp_path: Path) -> None:
    """Whatever the files hold, the answer is from 1 to the number of CPUs, and nothing is read beyond them."""
    rng = random.Random(38)
    pieces = [
        "0",
        "1",
        ":",
        "::",
        "/",
        "\n",
        "cpu",
        ",",
        "a",
        "max",
        " ",
        "-",
        "100000",
        "250000",
        "9" * 30,
        "\0",
        "\xff",
        "x" * 17000,
        "/..",
    ]
    for _ in range(150):
        names = (
            "proc/self/cgroup",
            f"{MOUNT}/cpu.max",
            f"{MOUNT}/a/cpu.max",
            f"{MOUNT}/cpu/cpu.cfs_quota_us",
            f"{MOUNT}/cpu/cpu.cfs_period_us",
        )
        files = {name: "".join(rng.choices(pieces, k=rng.randrange(12))) for name in names}
        assert 1 <= ask(build, tmp_path, files, 8, SANITIZERS) <= 8, files


# -- Real ones --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def real_group() -> Iterator[tuple[Path, Callable[[Path, int, int], None]]]:
    """A control group of this machine that holds nothing, and how a group gets its quota; skips where none can be made."""
    first = Path("/sys/fs/cgroup/cpu")
    group = (first if first.is_dir() else Path("/sys/fs/cgroup")) / f"legacyml-test-{os.getpid()}"

    def limit(folder: Path, time: int, period: int) -> None:
        if (folder / "cpu.max").exists():
            (folder / "cpu.max").write_text(f"{time} {period}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(period))
            (folder / "cpu.cfs_quota_us").write_text(str(time))

    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        if not (group / "cpu.max").exists() and not (group / "cpu.cfs_quota_us").exists():
            pytest.skip("control groups have no CPU quota here")
        yield group, limit
    finally:
        for path in (group / "inner", group):
            with contextlib.suppress(FileNotFoundError):
                path.rmdir()


def default_threads(ml_run: Path, model: Path, group: Path) -> int:
    """What ml_run starts with in a control group."""

    def enter() -> None:
        (group / "cgroup.procs").write_text("0")  # the process that writes

    command = [ml_run, model, "--tokens", "1,2", "-n", "1"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, preexec_fn=enter)
    assert run.returncode == 0, run.stderr
    [line] = [line for line in run.stderr.splitlines() if line.startswith("threads: ")]
    return int(line.removeprefix("threads: ").split(",")[0])


def test_real_quota(build: Callable[..., Path], random_model: Callable[..., Path]) -> None:
    """ml_run in control groups of the kernel: half a CPU, a CPU and a half, a limit above the group."""
    available = len(os.sched_getaffinity(0))
    if available < 2:
        pytest.skip("one CPU: a quota cannot be told from it")
    ml_run, model = build("sse2") / "ml_run", random_model(dim=64, layers=2, heads=4, kv_heads=2, hidden=96, vocab=300, max_seq=16)
    with real_group() as (group, limit):
        free = default_threads(ml_run, model, group)
        if free < 2:
            pytest.skip("this process may use one CPU only")
        assert free <= available
        for time, threads in ((50000, 1), (150000, 1), (100000 * free, free), (100000 * (free + 3), free)):
            limit(group, time, 100000)
            assert default_threads(ml_run, model, group) == threads, time
        limit(group, 100000, 100000)
        inner = group / "inner"
        inner.mkdir()
        assert default_threads(ml_run, model, inner) == 1
