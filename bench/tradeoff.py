"""Fig. 2: quantisation error and code entropy of two Gaussian dimensions against the angle."""

import matplotlib.pyplot as plt
import numpy as np

from bench.report import Options, print_table, save
from faiss_prh.theory import code_entropy, pair_quantisation_error

PAIRS = [(2.0, 1.0), (1.2, 1.0), (4.0, 1.0), (16.0, 1.0)]
SHOWN = (0, 15, 30, 45, 60, 75, 90)


def run(options: Options) -> None:
    degrees = np.linspace(0, 90, 181)
    theta = np.deg2rad(degrees)
    figure, panels = plt.subplots(1, 2, figsize=(11, 4))
    results = {}
    rows = []
    for lambda1, lambda2 in PAIRS:
        error = pair_quantisation_error(lambda1, lambda2, theta) / (lambda1 + lambda2)
        entropy = code_entropy(lambda1, lambda2, theta)
        name = f"λ1 = {lambda1:g}, λ2 = {lambda2:g}"
        results[name] = {"degrees": degrees.tolist(), "error": error.tolist(), "entropy": entropy.tolist()}
        for panel, values in zip(panels, (error, entropy), strict=True):
            panel.plot(degrees, values, label=name)
        for what, values in (("error", error), ("entropy", entropy)):
            rows.append([name, what, *(f"{values[2 * angle]:.4f}" for angle in SHOWN)])
    print(
        "At 45° variances are equal: the error is least, and so is the entropy. At 0° and 90°, on the principal axes,"
    )
    print("both are greatest. Error: of the signs, per unit of variance. Entropy: of the two bits.\n")
    print_table(["", "", *(f"{angle}°" for angle in SHOWN)], rows)
    for panel, name in zip(panels, ("quantisation error / variance", "code entropy, bits"), strict=True):
        panel.set(xlabel="θ, degrees", ylabel=name)
        panel.legend()
        panel.grid(alpha=0.3)
    save(options.output, "tradeoff", results, figure)
