"""One style for all pictures: our lines thick, dark and solid, rivals' thin, grey and broken, so also told in grey."""

import json
from collections.abc import Callable, Iterable
from itertools import chain, cycle, repeat
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

WIDTH = 7.2
"""Inches: about 690 pixels, the width of the text on GitHub."""
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "legend.fontsize": 8,
    "axes.grid": True,
    "grid.color": "0.9",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "figure.constrained_layout.w_pad": 0.08,
    "svg.fonttype": "path",  # the same letters wherever it is shown
    "svg.hashsalt": "faiss-prh",  # the same names of elements in every run
}
_MARKERS = "os^Dvph*"  # one more than colours, so that an eighth line is not the first again
_OURS = ("#0b3d91", "#7a1f5c", "#00594f", "#8a3b00", "#4b2a85", "#3d4a00", "#000000")
_GREYS = ("0.25", "0.45", "0.6")
_DASHES = ((0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (4, 1, 1, 1, 1, 1)))
_BELOW_LABELS = 0.45  # inches from an axis to what stands below its label


def is_ours(name: str) -> bool:
    return "PRH" in name


def styles(names: Iterable[str], ours: Callable[[str], bool] = is_ours) -> dict[str, dict[str, Any]]:
    """Return the arguments of `plot` for each method; the first of our lines is the thickest."""
    dark, our_markers, widths = cycle(_OURS), cycle(_MARKERS), chain([2.4], repeat(1.7))
    greys, rival_markers, dashes = cycle(_GREYS), cycle(_MARKERS), cycle(_DASHES)
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(names):
        if ours(name):
            look = {"color": next(dark), "marker": next(our_markers), "linewidth": next(widths), "markersize": 6.5}
        else:  # above ours, and smaller, so that both are seen where they meet
            look = {"color": next(greys), "marker": next(rival_markers), "linewidth": 1.1, "markersize": 4, "zorder": 3}
            look |= {"linestyle": next(dashes), "markerfacecolor": "white"}
        found[name] = {"label": name, **look}
    return found


def panels(count: int, columns: int, height: float, width: float = WIDTH, **shared: Any) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes, in rows of the given height in inches."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    cells = figure.subplots(rows, columns, squeeze=False, **shared).ravel()
    for unused in cells[count:]:
        unused.remove()
    return figure, list(cells[:count])


def log_axis(axis: Any, ticks: Iterable[float] | None = None) -> None:
    """Make an axis logarithmic, with plain numbers at `ticks`, or at the decades."""
    name = axis.axis_name
    axis.axes.set(**{f"{name}scale": "log"})
    if ticks is not None:
        axis.set_ticks(sorted(set(ticks)))
    else:
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1,) if high > 50 * low else (1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_plain))


def _plain(value: float, _position: int | None = None) -> str:
    return f"{value:g}" if value < 10_000 else f"{value:,.0f}"


def shared_legend(figure: Figure, columns: int) -> None:
    """Put one legend for all panels below them, ours first."""
    lines = {line.get_label(): line for panel in figure.axes for line in panel.get_lines()}
    handles = sorted(lines.values(), key=lambda line: line.get_zorder())
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def legend_below(panel: Any, columns: int = 2) -> None:
    """Put the legend of a panel below it."""
    below = panel.transAxes + ScaledTranslation(0, -_BELOW_LABELS, panel.figure.dpi_scale_trans)
    panel.legend(loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=below, ncols=columns)


def drawn(plot: Callable[[Any], Figure], results: Any) -> Figure:
    """Return the figure that `plot` makes of results, less the tick labels that would overlap."""
    with mpl.rc_context(STYLE):
        figure = plot(results)
        figure.draw_without_rendering()
        for panel in figure.axes:
            if isinstance(panel.xaxis.get_major_locator(), FixedLocator):
                _thin(panel.xaxis)
    return figure


def _thin(axis: Any) -> None:
    """Drop each label that would touch the one before it."""
    shown, end = [], -float("inf")
    for label in axis.get_majorticklabels():
        extent = label.get_window_extent()
        is_free = extent.x0 > end + extent.height / 3
        shown.append(label.get_text() if is_free else "")
        end = extent.x1 if is_free else end
    axis.set_ticks(axis.get_majorticklocs(), shown)


def save(output: Path | None, name: str, results: Any, plot: Callable[[Any], Figure]) -> None:
    """Write results as JSON and as a picture to the folder, if one was named; it exists."""
    if output is None:
        return
    file = output / f"{name}.json"
    file.write_text(json.dumps(results, indent=1) + "\n")
    redraw(file, plot)
    print(f"\nWritten: {file} and .svg")


def redraw(file: Path, plot: Callable[[Any], Figure]) -> None:
    """Draw the results in a JSON file as SVG beside it; the same Matplotlib draws the same bytes."""
    figure = drawn(plot, json.loads(file.read_text()))
    with mpl.rc_context(STYLE):
        figure.savefig(file.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
