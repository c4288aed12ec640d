#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws the roofline of a build: how fast its kernels are, and what memory and the CPU allow.

    build/avx2/ml_bench --json > avx2.json
    tools/roofline.py avx2.json avx2.png

Each kernel of ml_bench that does multiply-adds is a point: across how many there are for each byte that it reads, upwards how many it
does in a second. What memory feeds is the slope, the peak of each kind of multiply-add a level; a kernel whose data comes from memory
stays below both, one whose data comes from the caches below its level. Needs matplotlib. Exit status: 0 done, 2 usage, 3 I/O, 4 no output
of ml_bench.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import io
import json
import math
import os
import sys
from pathlib import Path

PEAKS = {"q8": "bytes", "q4": "bytes by four bits", "f32": "floats"}
NEAR = 1.3  # intensities within this factor share a column of labels
LABEL_HEIGHT = 0.021  # of the height of the plot


@dataclasses.dataclass
class Kernel:
    op: str
    shape: str
    intensity: float  # multiply-adds for each byte
    rate: float  # G multiply-adds/s
    from_memory: bool


@dataclasses.dataclass
class Roofline:
    title: str
    read: float  # GB/s
    peaks: dict[str, float]  # G multiply-adds/s
    kernels: list[Kernel]


def number(value: object) -> float:
    """A positive number of a JSON file. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValueError(f"expected a number above 0, found {value!r}")
    return float(value)


def read(text: str) -> Roofline:
    """What `ml_bench --json` found about kernels. Raises ValueError with a sentence for anything else."""
    try:
        found = json.loads(text)
        kernels = []
        for row in found["kernels"]:
            if row["gmadd_per_s"] is None:
                continue
            shape = f"{row['rows']} x {row['cols']}" if row["rows"] else f"{row['cols']}"
            shape += f", {row['vectors']}" if (row["vectors"] or 1) > 1 else ""
            rate = number(row["gmadd_per_s"])
            kernels.append(Kernel(str(row["op"]), shape, rate / number(row["gb_per_s"]), rate, bool(row["from_memory"])))
        if not kernels:
            raise ValueError("expected kernels that do multiply-adds, found none")
        peaks = {kind: number(found["peak_gmadd_per_s"][kind]) for kind in PEAKS}
        return Roofline(f"{found['isa']}, legacyml {found['version']}", number(found["read_gb_per_s"]), peaks, kernels)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"expected the output of ml_bench --json without a model, found something else ({error})") from None


def spread(places: list[float], distance: float) -> list[float]:
    """Places in rising order, moved to be `distance` apart: those that are too close become a group around their middle."""
    groups: list[tuple[float, int]] = []  # middle, members
    for place in places:
        group = (place, 1)
        while groups and group[0] - groups[-1][0] < distance * (group[1] + groups[-1][1]) / 2:
            middle, n = groups.pop()
            group = ((middle * n + group[0] * group[1]) / (n + group[1]), n + group[1])
        groups.append(group)
    return [middle + distance * (i - (n - 1) / 2) for middle, n in groups for i in range(n)]


def gaps(kernels: list[Kernel]) -> list[list[tuple[Kernel, float, bool]]]:
    """Labels stand in every second gap between the intensities: those of the one before it to the right of their points, those of the one
    behind it to the left. For each gap its kernels from below, with the place of the label and whether it is to the left."""
    groups: list[list[float]] = []
    for intensity in sorted({k.intensity for k in kernels}):
        if groups and intensity < groups[-1][-1] * NEAR:
            groups[-1].append(intensity)
        else:
            groups.append([intensity])
    result: list[list[tuple[Kernel, float, bool]]] = []
    for i, group in enumerate(groups):
        is_left = i % 2 == 1
        if not is_left:
            result.append([])
        place = group[0] / 1.2 if is_left else group[-1] * 1.2
        result[-1] += [(k, place, is_left) for k in kernels if group[0] <= k.intensity <= group[-1]]
    return [sorted(gap, key=lambda label: label[0].rate) for gap in result]


def draw(roofline: Roofline) -> bytes:
    """The plot as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    kernels = roofline.kernels
    left, right = min(k.intensity for k in kernels) / 2, max(k.intensity for k in kernels) * 4
    bottom = min(k.rate for k in kernels) / 2
    top = max(*roofline.peaks.values(), *(k.rate for k in kernels)) * 1.6
    figure, axes = pyplot.subplots(figsize=(14, 8), layout="constrained")
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
    axes.set(xlabel="multiply-adds for each byte read", ylabel="G multiply-adds/s", title=roofline.title)
    axes.grid(alpha=0.25)

    highest = max(roofline.peaks.values())
    axes.plot([left, highest / roofline.read], [left * roofline.read, highest], color="black", label=f"memory, {roofline.read:.1f} GB/s")
    levels: dict[float, list[str]] = {}
    for kind, peak in roofline.peaks.items():
        same = next((level for level in levels if abs(level - peak) < 0.02 * peak), peak)  # measured twice
        levels.setdefault(same, []).append(PEAKS[kind])
    for style, (level, kinds) in zip(("-", "--", ":"), levels.items()):
        axes.plot([level / roofline.read, right], [level, level], style, color="black", label=f"{' and '.join(kinds)}, {level:.1f} G/s")

    colors = dict(zip(dict.fromkeys(k.op for k in kernels), pyplot.get_cmap("tab10").colors * len(kernels)))
    for op, color in colors.items():
        own = [k for k in kernels if k.op == op]
        faces = [color if k.from_memory else "white" for k in own]
        axes.scatter([k.intensity for k in own], [k.rate for k in own], c=faces, edgecolors=[color], s=36, zorder=3)
        axes.scatter([], [], color=color, label=op)
    axes.scatter([], [], c="white", edgecolors="gray", label="hollow: data from the caches")

    height = math.log(top / bottom)
    for gap in gaps(kernels):
        heights = spread([math.log(kernel.rate / bottom) / height for kernel, _, _ in gap], LABEL_HEIGHT)
        for (kernel, place, is_left), at in zip(gap, heights):
            axes.annotate(
                kernel.shape,
                (kernel.intensity, kernel.rate),
                (place, bottom * math.exp(at * height)),
                color=colors[kernel.op],
                fontsize=8,
                ha="right" if is_left else "left",
                va="center",
                arrowprops={"arrowstyle": "-", "color": colors[kernel.op], "lw": 0.5, "shrinkA": 1, "shrinkB": 3},
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
    figure.legend(loc="outside right upper", fontsize=8)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=110)
    pyplot.close(figure)
    return image.getvalue()


def write(path: Path, data: bytes) -> None:
    """All of it, or no file."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("found", type=Path, metavar="FILE.json", help="what ml_bench --json printed")
    parser.add_argument("plot", type=Path, metavar="FILE.png")
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("matplotlib") is None:
        parser.error("matplotlib is needed: pip install matplotlib")
    try:
        write(options.plot, draw(read(options.found.read_text(encoding="utf-8"))))
    except OSError as error:
        print(f"roofline: {error.filename or options.plot}: {error.strerror}", file=sys.stderr)
        return 3
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are such too
        print(f"roofline: {options.found}: {error}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
