import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from faiss_prh.learning.descent import descend


@given(st.integers(1, 12), seeds)
def test_the_minimum_of_a_parabola(n, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    matrix, wanted = root @ root.T + np.eye(n), rng.normal(size=n)

    def parabola(x):
        return float((x - wanted) @ matrix @ (x - wanted)), 2 * matrix @ (x - wanted)

    np.testing.assert_allclose(descend(parabola, np.zeros(n), steps=200), wanted, atol=1e-2)


def test_no_step_goes_up():
    seen = []

    def rosenbrock(x):
        value = float((1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2)
        seen.append((value, x))
        bend = x[1] - x[0] ** 2
        return value, np.array([-2 * (1 - x[0]) - 400 * x[0] * bend, 200 * bend])

    values = []
    for steps in range(0, 60, 5):
        values.append(rosenbrock(descend(rosenbrock, np.array([-1.2, 1.0]), steps))[0])
    assert np.all(np.diff(values) <= 0)
    assert values[-1] < 1e-6


def test_where_there_is_no_way_down():
    start = np.array([1.0, -2.0])
    np.testing.assert_array_equal(descend(lambda x: (3.0, np.zeros(2)), start, steps=5), start)
    np.testing.assert_array_equal(descend(lambda x: (float(x is not start), np.ones(2)), start, steps=0), start)
    # A slope that is wrong: every step is uphill.
    np.testing.assert_array_equal(descend(lambda x: (float(x[0]), np.array([-1.0, 0])), start, steps=5), start)
