"""Recall curves of several encoders on a data set: learned, encoded and measured for several seeds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from tqdm import tqdm

from bench.baselines import Makers
from bench.datasets import Dataset
from bench.recall import CUTS, NEIGHBOURS, recall_curve
from bench.report import NO_FIGURE, Options, print_table, save

SHOWN = (10, 100, 1000)


@dataclass
class Curve:
    """Recalls (seeds, cuts) of one encoder."""

    bits: int
    recalls: np.ndarray
    n_base: int

    def at(self, cut: int) -> np.ndarray:
        """Return the recall of each seed among the first `cut` codes."""
        return self.recalls[:, int(np.flatnonzero(cut == CUTS)[0])]

    def shown(self, cut: int) -> str:
        """Return the mean over the seeds and half the distance of the extremes, where not all vectors are among R."""
        return NO_FIGURE if cut >= self.n_base else f"{self.at(cut).mean():.3f} ± {np.ptp(self.at(cut)) / 2:.3f}"

    def label(self, name: str, bits: int | None) -> str:
        """Return the name of the method, marked if it has another number of bits than all are to have."""
        return name if bits in (None, self.bits) else f"{name}, {self.bits} bits"

    def as_json(self) -> dict[str, Any]:
        return {"bits": self.bits, "cuts": CUTS.tolist(), "recalls": self.recalls.round(5).tolist()}


def measure(datasets: Iterable[Dataset], makers: Makers, title: str) -> dict[str, Curve]:
    """
    Return the curve of each encoder, for one seed a data set.

    Where the data set stays the same, what draws nothing at random is measured once.
    """
    curves: dict[str, Curve] = {}
    before, truth = None, np.empty(0)
    for seed, dataset in enumerate(datasets):
        is_new = dataset is not before
        if is_new:
            before, truth = dataset, dataset.neighbours(NEIGHBOURS)
        for name, make in tqdm(makers.items(), desc=f"{title}, seed {seed}", leave=False):
            encoder = make(seed)
            if not is_new and not encoder.is_random:
                continue
            encoder.train(dataset.train)
            recalls = recall_curve(encoder.encode(dataset.query), encoder.encode(dataset.base), truth)
            if name in curves:
                curves[name].recalls = np.vstack([curves[name].recalls, recalls])
            else:
                curves[name] = Curve(encoder.bits, recalls[None], len(dataset.base))
    return curves


def print_curves(title: str, curves: dict[str, Curve], bits: int | None = None) -> None:
    """
    Print the recalls at some cuts: the mean over the seeds, and half the distance of the extremes.

    Methods with another number of bits than all are to have are marked.
    """
    print(f"\n{title}")
    print(f"Share of the {NEIGHBOURS} nearest among the R nearest codes; mean ± half the range of the seeds.\n")
    rows = []
    for name, curve in curves.items():
        cells = [curve.shown(cut) for cut in SHOWN]
        rows.append([name, f"{curve.bits}{'' if bits in (None, curve.bits) else f', not {bits}'}", *cells])
    print_table(["", "bits", *(f"R = {cut}" for cut in SHOWN)], rows)


def draw(panel: Any, title: str, curves: dict[str, Curve], bits: int | None = None) -> None:
    """Draw recall against R; methods with another number of bits than all are to have are marked."""
    for number, (name, curve) in enumerate(curves.items()):
        mean = curve.recalls.mean(axis=0)
        style = "-" if name.startswith("PRH") else "--"
        (line,) = panel.plot(CUTS, mean, style, label=curve.label(name, bits), lw=1.5, color=f"C{number % 10}")
        panel.fill_between(
            CUTS, curve.recalls.min(axis=0), curve.recalls.max(axis=0), color=line.get_color(), alpha=0.15
        )
    panel.set(title=title, xlabel="R", ylabel=f"{NEIGHBOURS}-recall@R", xscale="log")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=7)


@dataclass
class Row:
    """Panels side by side: the same data, other encoders."""

    title: str
    datasets: Callable[[], Iterable[Dataset]]  # one for each seed
    panels: dict[str, Makers]
    bits: dict[str, int]  # that all encoders of a panel are to have


def measure_rows(rows: list[Row]) -> tuple[dict[str, dict[str, Curve]], plt.Figure]:
    """Measure, print and draw all panels; return their curves and the figure."""
    figure, panels = plt.subplots(len(rows), 3, figsize=(18, 5 * len(rows)), squeeze=False)
    found = {}
    for row, axes in zip(rows, panels, strict=True):
        for axis, (what, makers) in zip(axes, row.panels.items(), strict=True):
            title, bits = f"{row.title}, {what}", row.bits.get(what)
            curves = found[title] = measure(row.datasets(), makers, title)
            print_curves(title, curves, bits)
            draw(axis, title, curves, bits)
    return found, figure


def as_json(found: dict[str, dict[str, Curve]]) -> dict[str, Any]:
    return {title: {name: curve.as_json() for name, curve in curves.items()} for title, curves in found.items()}


def run_rows(options: Options, name: str, rows: list[Row]) -> None:
    """Measure, print, draw and save all panels."""
    found, figure = measure_rows(rows)
    save(options.output, name, as_json(found), figure)
