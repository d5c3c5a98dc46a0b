"""Recall curves of several encoders on a data set: learned, encoded and measured for several seeds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from bench.baselines import Makers
from bench.datasets import Dataset
from bench.plots import Figure, legend_below, log_axis, panels, save, styles
from bench.recall import CUTS, NEIGHBOURS, recall_curve
from bench.report import NO_FIGURE, Options, print_table

SHOWN = (10, 100, 1000)
PANELS = 3  # side by side


@dataclass
class Curve:
    """Recalls (seeds, cuts) of one encoder, and the number of bits wanted from it, if any was."""

    bits: int
    recalls: np.ndarray
    n_base: int
    wanted_bits: int | None = None

    def at(self, cut: int) -> np.ndarray:
        """Return the recall of each seed among the first `cut` codes."""
        return self.recalls[:, int(np.flatnonzero(cut == CUTS)[0])]

    def shown(self, cut: int) -> str:
        """Return the mean over the seeds and half their range, or a dash if `cut` takes in all vectors."""
        return NO_FIGURE if cut >= self.n_base else f"{self.at(cut).mean():.3f} ± {np.ptp(self.at(cut)) / 2:.3f}"

    @property
    def has_wanted_bits(self) -> bool:
        return self.wanted_bits in (None, self.bits)

    def label(self, name: str) -> str:
        """Return the name of the method, and its number of bits if another was wanted."""
        return name if self.has_wanted_bits else f"{name}, {self.bits} bits"

    def as_json(self, name: str) -> dict[str, Any]:
        recalls = self.recalls.round(5).tolist()
        return {"label": self.label(name), "bits": self.bits, "cuts": CUTS.tolist(), "recalls": recalls}


def measure(datasets: Iterable[Dataset], makers: Makers, title: str, bits: int | None = None) -> dict[str, Curve]:
    """
    Return the curve of each encoder, with the n-th seed on the n-th data set.

    While the data set stays the same, encoders that draw nothing at random are measured only once.
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
                curves[name] = Curve(encoder.bits, recalls[None], len(dataset.base), bits)
    return curves


def print_curves(title: str, curves: dict[str, Curve]) -> None:
    """Print the recalls at some cuts, and mark methods whose number of bits is not the one wanted."""
    print(f"\n{title}")
    print(f"Share of the {NEIGHBOURS} nearest among the R nearest codes; mean ± half the range of the seeds.\n")
    rows = []
    for name, curve in curves.items():
        cells = [curve.shown(cut) for cut in SHOWN]
        rows.append([name, f"{curve.bits}{'' if curve.has_wanted_bits else f', not {curve.wanted_bits}'}", *cells])
    print_table(["", "bits", *(f"R = {cut}" for cut in SHOWN)], rows)


@dataclass
class Row:
    """Panels side by side: different encoders on the same data."""

    title: str
    datasets: Callable[[], Iterable[Dataset]]  # one for each seed
    panels: dict[str, Makers]
    bits: dict[str, int]  # wanted from the encoders of a panel


def measure_rows(rows: list[Row]) -> dict[str, dict[str, Curve]]:
    """Measure and print all panels; return their curves, by title."""
    found = {}
    for row in rows:
        for what, makers in row.panels.items():
            title = f"{row.title}, {what}"
            found[title] = measure(row.datasets(), makers, title, row.bits.get(what))
            print_curves(title, found[title])
    return found


def as_json(found: dict[str, dict[str, Curve]]) -> dict[str, Any]:
    return {title: {name: curve.as_json(name) for name, curve in curves.items()} for title, curves in found.items()}


def run_rows(options: Options, name: str, rows: list[Row]) -> None:
    """Measure, print, draw and save all panels."""
    save(options.output, name, as_json(measure_rows(rows)), plot)


def plot(results: dict[str, Any]) -> Figure:
    """Draw recall against R: the mean of the seeds, and their range."""
    figure, axes = panels(len(results), PANELS, height=4.6, width=12)
    for panel, (title, curves) in zip(axes, results.items(), strict=True):
        looks = styles(curve["label"] for curve in curves.values())
        for curve in curves.values():
            look, recalls = looks[curve["label"]], np.array(curve["recalls"])
            panel.plot(curve["cuts"], recalls.mean(axis=0), markevery=5, **look)
            range_of_seeds = recalls.min(axis=0), recalls.max(axis=0)
            panel.fill_between(curve["cuts"], *range_of_seeds, color=look["color"], alpha=0.15, linewidth=0)
        panel.set(title=title, xlabel="R", ylabel=f"{NEIGHBOURS}-recall@R")
        log_axis(panel.xaxis, SHOWN)
        legend_below(panel)
    return figure
