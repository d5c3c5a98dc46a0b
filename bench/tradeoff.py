"""Fig. 2: quantisation error and code entropy of two Gaussian dimensions against the angle."""

from typing import Any

import numpy as np

from bench.plots import Figure, panels, save, shared_legend, styles
from bench.report import Options, print_table
from faiss_prh.theory import code_entropy, pair_quantisation_error

PAIRS = [(2.0, 1.0), (1.2, 1.0), (4.0, 1.0), (16.0, 1.0)]
SHOWN = (0, 15, 30, 45, 60, 75, 90)


def run(options: Options) -> None:
    degrees = np.linspace(0, 90, 181)
    theta = np.deg2rad(degrees)
    results = {}
    rows = []
    for lambda1, lambda2 in PAIRS:
        error = pair_quantisation_error(lambda1, lambda2, theta) / (lambda1 + lambda2)
        entropy = code_entropy(lambda1, lambda2, theta)
        name = f"λ1 = {lambda1:g}, λ2 = {lambda2:g}"
        results[name] = {"degrees": degrees.tolist(), "error": error.tolist(), "entropy": entropy.tolist()}
        for what, values in (("error", error), ("entropy", entropy)):
            rows.append([name, what, *(f"{values[2 * angle]:.4f}" for angle in SHOWN)])
    print(
        "At 45° variances are equal: the error is least, and so is the entropy. At 0° and 90°, on the principal axes,"
    )
    print("both are greatest. Error: of the signs, per unit of variance. Entropy: of the two bits.\n")
    print_table(["", "", *(f"{angle}°" for angle in SHOWN)], rows)
    save(options.output, "tradeoff", results, plot)


def plot(results: dict[str, Any]) -> Figure:
    figure, (error, entropy) = panels(2, 2, 3.4)
    error.set(xlabel="θ, degrees", ylabel="quantisation error / variance", xticks=range(0, 91, 15))
    entropy.set(xlabel="θ, degrees", ylabel="code entropy, bits", xticks=range(0, 91, 15))
    for name, style in styles(results, ours=lambda name: True).items():
        for panel, values in ((error, "error"), (entropy, "entropy")):
            panel.plot(results[name]["degrees"], results[name][values], markevery=30, **style)
    shared_legend(figure, 4)
    return figure
