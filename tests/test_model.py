"""Any sequence of operations against a model in NumPy that searches everything."""

import faiss
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import faiss_prh
from bench.model import Modelled

D = 20
POOL = (np.random.default_rng(5).normal(size=(200, D)) * np.linspace(1, 3, D)).astype(np.float32)

batches = st.lists(st.integers(0, len(POOL) - 1), min_size=0, max_size=12)
some_ids = st.integers(0, 40)


class Machine(RuleBasedStateMachine):
    description, metric = "", faiss.METRIC_L2

    def __init__(self):
        super().__init__()
        self.modelled = Modelled(self.description, POOL, self.metric)

    @precondition(lambda self: self.modelled.takes_none)
    @rule(which=batches)
    def add(self, which):
        self.modelled.add(which)

    @precondition(lambda self: self.modelled.takes_ids)
    @rule(which=batches, first=some_ids)
    def add_with_ids(self, which, first):
        self.modelled.add_with_ids(which, first)

    @rule(first=some_ids, count=st.integers(0, 10), as_range=st.booleans())
    def remove(self, first, count, as_range):
        self.modelled.remove(first, count, as_range)

    @rule(which=batches, add_id=st.integers(0, 50))
    def merge(self, which, add_id):
        self.modelled.merge(which, add_id)

    @rule()
    def save_and_load(self):
        self.modelled.index = faiss_prh.deserialize_index(faiss_prh.serialize_index(self.modelled.index))

    @rule()
    def fail(self):
        self.modelled.fail()

    @rule()
    def reset(self):
        self.modelled.reset()

    @invariant()
    def finds_what_is_there(self):
        self.modelled.check()


SIGNS = ["PRH(4,2),IVF4,Signs", "PRH(4,2),IVF4,Signs,RFlat"]
DESCRIPTIONS = [
    "PRH(4,2),BFlat",
    "PRH(4,2),BIVF4",
    "IDMap2,PRH(4,2),BFlat",
    "IDMap,PRH(4,2),BIVF4",
    "PRH(4,2),BFlat,RFlat",
    "PRH(4,2),BFlat,RAsym",
    "PRH(4,2),BIVF4,RFlat",
    "PRH(4,2),BIVF4,RAsym",
    "IDMap2,PRH(4,2),BFlat,RAsym",
    "IDMap2,PRH(4,2),BIVF4,RFlat",
    "IDMap,PRH(4,2),BIVF4,RAsym",
    *SIGNS,
]


def run_machine(description, metric):
    machine = type("Described", (Machine,), {"description": description, "metric": metric})
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=12))


@pytest.mark.parametrize("description", DESCRIPTIONS)
def test_any_sequence_of_operations(description):
    run_machine(description, faiss.METRIC_L2)


@pytest.mark.parametrize("description", SIGNS)
def test_any_sequence_of_operations_with_products(description):
    run_machine(description, faiss.METRIC_INNER_PRODUCT)
