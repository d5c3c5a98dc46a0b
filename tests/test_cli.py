"""The command line: what it makes, what it refuses and how, and that an interrupt leaves files whole."""

import errno
import fcntl
import hashlib
import importlib.metadata
import json
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import faiss_prh
from faiss_prh.cli import commands, demo, evaluation, files, main, results, vector_files
from faiss_prh.cli.arguments import new_parser
from faiss_prh.index.factory_string import factory_string
from faiss_prh.index.parts_of import transforms_of
from faiss_prh.transform import PRHTransform

D = 16
RNG = np.random.default_rng(0)
MIX = RNG.normal(size=(D, D))
TRAIN, BASE, QUERY = ((RNG.normal(size=(n, D)) @ MIX).astype("f4") for n in (600, 1500, 20))
RUN = "import sys; from faiss_prh.cli import main; sys.exit(main())"  # as the installed script does


@pytest.fixture(autouse=True)
def interrupts_again():
    """A command leaves interrupts ignored, for the process to end."""
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with vectors, a transform and an index."""
    monkeypatch.chdir(tmp_path)
    for name, x in {"t": TRAIN, "b": BASE, "q": QUERY, "narrow": BASE[:, :12]}.items():
        np.save(f"{name}.npy", x)
    (tmp_path / "m.prh").write_bytes(PRHTransform.random(D).to_bytes())
    index = faiss_prh.IndexBinaryPreTransform(PRHTransform.random(D), faiss.IndexBinaryFlat(D))
    index.add(BASE)
    faiss_prh.write_index(index, "i.prh")
    return tmp_path


def succeed(capsys, *arguments):
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def refuse(capsys, arguments, code):
    """Return what a refusal says, which is one line."""
    try:
        returned = main(arguments)
    except SystemExit as stopped:
        returned = stopped.code
    printed = capsys.readouterr()
    assert (returned, printed.out) == (code, "")
    assert printed.err.startswith("faiss-prh: ")
    assert printed.err.count("\n") == 1
    return printed.err.removeprefix("faiss-prh: ").rstrip("\n")


# What the commands make


@pytest.mark.parametrize("factory", ["PRH,BIVF8", "PCA8,PRH,BFlat,RAsym", "PCA8,PRH,PQ4x4", "PRH,IVF4,Flat", "Flat"])
def test_build_add_and_search_do_what_the_library_does(factory, folder, capsys):
    succeed(capsys, "build", "--factory", factory, "--train", "t.npy", "--add", "b.npy", "q.npy", "-o", "new.prh")
    said = json.loads(succeed(capsys, "add", "new.prh", "b.npy", "--json", "--trusted"))
    assert (said["added"], said["vectors"]) == (1500, 3020)
    searching = ["search", "new.prh", "q.npy", "-k", "5", "-o", "r.npz", "--trusted"]
    assert "5 neighbours of 20 queries" in succeed(capsys, *searching)

    index = faiss_prh.index_factory(D, factory)
    index.train(TRAIN)
    for x in (BASE, QUERY, BASE):
        index.add(x)
    distances, ids = index.search(QUERY, 5)
    results = np.load("r.npz")
    np.testing.assert_array_equal(results["ids"], ids)
    # Without native code, BLAS multiplies with a matrix, and may round otherwise in a larger block.
    np.testing.assert_allclose(results["distances"], distances, rtol=1e-5)


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"faiss-prh {importlib.metadata.version('faiss-prh')}\n"


def test_search_takes_nprobe_and_k_factor(folder, capsys):
    index = faiss_prh.index_factory(D, "PRH,BIVF8,RFlat")
    index.train(TRAIN)
    index.add(BASE)
    faiss_prh.write_index(index, "new.prh")
    for nprobe, k_factor in ((1, 1), (4, 20), (100, 20)):
        options = ["--nprobe", str(nprobe), "--k-factor", str(k_factor)]
        succeed(capsys, "search", "new.prh", "q.npy", "-k", "7", "-o", "r.npz", *options)
        index.index.nprobe, index.k_factor = min(nprobe, 8), k_factor
        np.testing.assert_array_equal(np.load("r.npz")["ids"], index.search(QUERY, 7)[1])


class Lists:
    """An index with inverted lists and a margin that is no Faiss index."""

    d, is_trained, nlist, nprobe, margin = D, True, 8, 1, 0.5

    def search(self, x, k):
        found = self.nprobe, self.margin
        return np.tile(np.float32(found), (len(x), 1)), np.zeros((len(x), 2), int)


def test_search_takes_margin(folder, capsys, monkeypatch):
    monkeypatch.setattr(commands, "open_trained_index", lambda *_: Lists())
    for options, expected in {"": (1, 0.5), "--margin 0": (1, 0), "--margin 0.25 --nprobe 100": (8, 0.25)}.items():
        succeed(capsys, "search", "new.prh", "q.npy", "-o", "r.npz", *options.split())
        np.testing.assert_array_equal(np.load("r.npz")["distances"][0], expected)


@pytest.mark.parametrize(("bits", "dtype"), [(None, "f4"), (13, "f8")])
def test_train_and_encode(bits, dtype, folder, capsys):
    np.save("b.npy", BASE.astype(dtype))
    size = [] if bits is None else ["--bits", str(bits)]
    assert f"{D} dimensions to {bits or D} bits" in succeed(capsys, "train", "t.npy", "-o", "new.prh", *size)
    prh = PRHTransform.from_bytes((folder / "new.prh").read_bytes())
    assert prh.is_trained
    signs = prh.apply(BASE.astype(dtype)) >= 0
    for bitorder in ("little", "big"):
        succeed(capsys, "encode", "new.prh", "b.npy", "--bitorder", bitorder, "-o", "codes.npy")
        np.testing.assert_array_equal(np.load("codes.npy"), np.packbits(signs, axis=1, bitorder=bitorder))


def test_encoding_takes_no_memory_for_the_file(folder, capsys, monkeypatch):
    def mapped_kilobytes():
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"RssFile:\s*(\d+)", status)[1])

    def noted(*arguments, encode=PRHTransform.encode, **options):
        resident.append(mapped_kilobytes())
        return encode(*arguments, **options)

    resident = []
    monkeypatch.setattr(PRHTransform, "encode", noted)
    np.save("b.npy", np.zeros((400_000, D), "f4"))
    tracemalloc.start()
    try:
        succeed(capsys, "encode", "m.prh", "b.npy", "-o", "codes.npy")
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
    assert max(resident) - resident[0] < 4_000  # of 25 600
    assert np.load("codes.npy", mmap_mode="r").shape == (400_000, 2)


def test_seed_and_threads(folder, capsys, thread_count):
    thread_count(2)
    succeed(
        capsys, "build", "--factory", "PRH,LSH", "--train", "t.npy", "-o", "new.prh", "--seed", "7", "--threads", "1"
    )
    assert faiss.omp_get_max_threads() == 1
    assert transforms_of(faiss_prh.read_index("new.prh", trusted=True))[0].parameters.seed == 7
    succeed(capsys, "train", "t.npy", "-o", "new.prh", "--seed", "8")
    assert PRHTransform.from_bytes((folder / "new.prh").read_bytes()).parameters.seed == 8


def test_info_without_a_file_tells_what_runs(folder, capsys):
    said = json.loads(succeed(capsys, "info", "--json"))
    assert said == faiss_prh.show_config("dicts")
    assert said["backend"] in ("native", "kernels", "portable")
    text = succeed(capsys, "info")
    assert f"backend: {said['backend']}\nreason: {said['reason']}\n" in text
    assert f"faiss: {faiss.__version__}\n" in text
    faiss_prh.show_config()
    assert capsys.readouterr().out == text
    with pytest.raises(ValueError, match='mode must be "stdout" or "dicts"'):
        faiss_prh.show_config("table")


def test_info(folder, capsys):
    said = json.loads(succeed(capsys, "info", "i.prh", "--json"))
    assert said["prh"][0]["d_in"] == D
    assert said["prh"][0]["variance_kept"] is None  # it was never trained
    expected = {"factory": "SRR,BFlat", "dimensions": D, "bits": D, "vectors": 1500, "is_trained": True}
    assert expected.items() <= said.items()
    assert said["bytes"] == os.path.getsize("i.prh")
    text = succeed(capsys, "info", "i.prh")
    assert "factory: SRR,BFlat\n" in text
    assert "  rotations: 32 in 4 layers" in text

    said = json.loads(succeed(capsys, "info", "m.prh", "--json"))
    assert {"type": "PRHTransform", "dimensions": D, "bits": D, "is_trained": True}.items() <= said.items()
    (folder / "m.prh").write_bytes(PRHTransform(D, 8).to_bytes())
    assert "bits: 8\nis trained: False\n" in succeed(capsys, "info", "m.prh")


@pytest.mark.parametrize(
    "string",
    [
        "PRH,BFlat", "IDMap,PRH8,BFlat", "IDMap2,PRH,BIVF4,RAsym", "PRH(3,2,0.5),BHNSW8", "PRH8(3,1,0),BHash4",
        "PCA8,PRH,BHash2x4", "PCAR8,PRH,BIVF4_HNSW8", "PCAW8,ITQ8,BFlat,RFlat", "L2norm,RR16,PRH,BFlat,Refine(SQ8)",
        "PRH,Flat", "PCA8,PRH,PQ4x4", "IDMap,PRH,IVF4,Flat,RFlat", "PRH,HNSW8", "PRH,LSH", "IVF4,SQ8",
    ],
)  # fmt: skip
def test_factory_strings_come_back(string):
    index = faiss_prh.index_factory(D, string)
    assert factory_string(index) == string
    index.train(TRAIN)
    assert factory_string(faiss_prh.clone_index(index)) == string


def test_what_no_string_makes_is_named_by_its_class():
    assert factory_string(faiss_prh.index_factory(D, "OPQ4_8,PRH,BFlat")) == "OPQ4_8,PRH,BFlat"
    linear = faiss.LinearTransform(D, 8)
    index = faiss_prh.IndexBinaryPreTransform(linear, faiss.IndexBinaryFlat(8))
    assert factory_string(index) == "LinearTransform8,BFlat"
    assert factory_string(faiss.IndexBinaryFlat(D)) == "BFlat"


def test_an_id_map_that_no_string_asked_for_is_not_in_it():
    index = faiss_prh.index_factory(D, "PRH,BIVF4,RFlat")
    index.train(TRAIN)
    index.add_with_ids(BASE, np.arange(len(BASE)) + 7)
    assert factory_string(faiss_prh.clone_index(index)) == "PRH,BIVF4,RFlat"


FILES = ["--train", "t.npy", "--base", "b.npy", "--query", "q.npy"]


def evaluated(capsys, *factories, options=()):
    given = [word for factory in factories for word in ("--factory", factory)]
    return json.loads(succeed(capsys, "eval", *given, *FILES, "--json", *options))


def test_eval(folder, capsys, monkeypatch):
    monkeypatch.setattr(evaluation, "WARM_UP_SECONDS", 0)
    rows = evaluated(capsys, "PRH,BIVF8", "PRH,BHNSW8", "PRH,BIVF4,RFlat", "Flat")["points"]
    settings = [("PRH,BIVF8", "nprobe 1"), ("PRH,BIVF8", "nprobe 4"), ("PRH,BHNSW8", "efSearch 16")]
    settings += [("PRH,BHNSW8", "efSearch 64"), ("PRH,BHNSW8", "efSearch 256")]
    settings += [("PRH,BIVF4,RFlat", f"nprobe {n}, k_factor {factor}") for n in (1, 4) for factor in (3, 10, 30)]
    settings += [("Flat", "")]
    assert [(row["factory"], row["setting"]) for row in rows] == settings

    truth = np.argsort(((QUERY[:, None] - BASE.astype(float)) ** 2).sum(axis=2), axis=1)[:, :10]
    index = faiss_prh.index_factory(D, "PRH,BIVF4,RFlat")
    index.train(TRAIN)
    index.add(BASE)
    for row in rows[5:11]:
        index.index.nprobe, index.k_factor = map(int, re.findall("[0-9]+", row["setting"]))
        for k in (10, 100):
            ids = index.search(QUERY, k)[1]
            expected = np.mean([len(set(mine) & set(true)) / 10 for mine, true in zip(ids, truth, strict=True)])
            assert row[f"recall_at_{k}"] == pytest.approx(expected)
    assert len({row["recall_at_10"] for row in rows[5:11]}) > 4  # so that both parameters matter
    index = faiss_prh.index_factory(D, "PRH,BIVF8")
    index.train(TRAIN)
    index.add(BASE)
    assert rows[1]["file_bytes"] == len(faiss_prh.serialize_index(index))
    assert rows[1]["bytes_per_vector"] == pytest.approx(10, abs=0.1)  # 2 of the code, 8 of the id
    assert (rows[-1]["recall_at_10"], round(rows[-1]["bytes_per_vector"])) == (1, 4 * D)
    assert all(row[name] > 0 for row in rows for name in ("train_seconds", "add_seconds", "milliseconds_per_query"))


def test_eval_sweeps_all_parameters_of_an_index():
    def names(index):
        return list(evaluation.search_settings(index, 10))

    signs = Lists()
    swept = [f"nprobe {n}, margin {margin}" for n in (1, 4) for margin in (0.0, 0.05, 0.1, 0.2)]
    assert names(signs) == swept
    signs.k_factor = 1
    assert names(signs) == [f"{name}, k_factor {factor}" for name in swept for factor in (3, 10, 30)]
    for string in ("PRH,BIVF8,RAsym", "PRH,IVF8,PQ4x4,RFlat", "IVF8,PQ4+4"):
        index = faiss_prh.index_factory(D, string)
        assert names(index) == [f"nprobe {n}, k_factor {factor}" for n in (1, 4) for factor in (3, 10, 30)]
    assert names(faiss_prh.index_factory(D, "PRH,BFlat,RFlat")) == ["k_factor 3", "k_factor 10", "k_factor 30"]
    assert names(faiss_prh.index_factory(D, "PRH,BFlat")) == [""]


@pytest.mark.parametrize("string", ["PRH,BHNSW8,RFlat", "PRH,HNSW8,RFlat"])
def test_no_two_settings_of_a_graph_do_the_same(string):
    settings = evaluation.search_settings(faiss_prh.index_factory(D, string), 10)
    pairs = [(30, 3), (100, 10), (300, 30), (64, 3), (256, 3), (256, 10)]  # Faiss visits no fewer than it returns
    assert sorted(settings) == sorted(f"efSearch {n}, k_factor {factor}" for n, factor in pairs)


def test_a_setting_sets_all_of_its_parameters():
    index, signs = faiss_prh.index_factory(D, "PRH,IVF8,PQ4x4,RFlat"), Lists()
    signs.k_factor = 1
    inner = faiss.extract_index_ivf(index)
    ways = {**evaluation.search_settings(index, 10), **evaluation.search_settings(signs, 10)}
    for name in RNG.permutation(list(ways)):
        ways[name]()
        given = {word.split()[0]: float(word.split()[1]) for word in name.split(", ")}
        if "margin" in given:
            assert given == {"nprobe": signs.nprobe, "margin": signs.margin, "k_factor": signs.k_factor}
        else:
            assert given == {"nprobe": inner.nprobe, "k_factor": index.k_factor}


def test_settings_are_timed_in_turn_and_the_median_counts(folder, capsys, monkeypatch):
    def scripted(run):
        run()
        searched.append(run)
        return next(times)

    index = faiss_prh.index_factory(D, "PRH,BIVF8")
    index.train(TRAIN)
    index.add(BASE)
    times, searched = iter([5, 1, 1, 9, 2, 2]), []
    monkeypatch.setattr(evaluation, "WARM_UP_SECONDS", 0)
    monkeypatch.setattr(evaluation, "seconds", scripted)
    found = evaluation.evaluate("PRH,BIVF8", index, QUERY, np.zeros((20, 10), int), 0, 0, 0)
    assert [20 / e.queries_per_second for e in found] == [2, 2]
    assert searched == searched[:2] * 3


def test_recall_is_exact():
    """As a mean of means of floats, 19 of 20 can be a little less than 0.95."""
    rng = np.random.default_rng(1)
    for hits in rng.integers(0, 11, size=(200, 20)):
        truth = np.tile(np.arange(10), (20, 1))
        found = np.where(truth < hits[:, None], truth, -1)
        assert evaluation.recall(found, truth) == sum(hits.tolist()) / 200


def measured(recall, speed, setting=""):
    return evaluation.Evaluation("PRH,BFlat", setting, recall, speed, 8.0, recall, 1.0, 1.0, 100)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6))))
def test_what_nothing_else_beats(pairs):
    points = [measured(recall / 6, speed) for recall, speed in pairs]
    best = {}  # the speed that is to be had with at least this recall
    for recall, speed in sorted(pairs, reverse=True):
        if speed > max(best.values(), default=0):
            best[recall] = speed
    expected = [best.get(recall) == speed for recall, speed in pairs]
    assert [results.is_unbeaten(point, points) for point in points] == expected


def test_the_table_marks_what_nothing_else_beats(folder, capsys, monkeypatch):
    points = [measured(0.5, 100.0, "a"), measured(0.9, 10.0, "b"), measured(0.8, 10.0, "c"), measured(0.9, 10.0, "d")]
    lines = results.as_text(points, None).splitlines()
    assert [line.startswith("*  PRH,BFlat  ") for line in lines[2:6]] == [True, True, False, True]
    assert lines[-1].startswith("* ")
    assert [row["is_unbeaten"] for row in results.as_json(points, None)["points"]] == [True, True, False, True]
    monkeypatch.setattr(evaluation, "evaluate", lambda *_: points)
    assert succeed(capsys, "eval", "--factory", "Flat", *FILES).splitlines() == lines


def test_eval_prints_the_fastest_setting_that_reaches_a_recall(folder, capsys, monkeypatch):
    points = [measured(0.6, 90.0, "nprobe 1"), measured(0.8, 30.0, "nprobe 4"), measured(0.8, 40.0, "nprobe 5")]
    points += [measured(0.8, 40.0, "nprobe 6"), measured(0.9, 40.0, "nprobe 7")]
    monkeypatch.setattr(evaluation, "evaluate", lambda *_: points)
    says = {
        "0.6": "The fastest with 10-recall@10 of at least 0.6 is PRH,BFlat, nprobe 1: ",
        "0.7": "The fastest with 10-recall@10 of at least 0.7 is PRH,BFlat, nprobe 7: ",
        "0.95": "None reaches 10-recall@10 of 0.95. The closest is PRH,BFlat, nprobe 7: ",
    }
    for target, sentence in says.items():
        options = ["--target-recall", target]
        text = succeed(capsys, "eval", "--factory", "Flat", *FILES, *options)
        last = text.splitlines()[-1]
        assert last.startswith(sentence)
        said = evaluated(capsys, "Flat", options=options)
        assert said["target_recall"] == float(target)
        if target == "0.95":
            assert said["fastest"] is None
        else:
            assert said["fastest"] in said["points"]
            assert said["fastest"]["setting"] in last
    assert last.endswith(": 0.9000, 25.000 ms/query, 8.0 bytes/vector")
    said = evaluated(capsys, "Flat")
    assert (said["target_recall"], said["fastest"], len(said["points"])) == (None, None, 5)


def test_an_exact_index_reaches_every_recall(folder, capsys, monkeypatch):
    monkeypatch.setattr(evaluation, "WARM_UP_SECONDS", 0)
    said = evaluated(capsys, "PRH,BIVF8", "Flat", options=["--target-recall", "1"])
    assert (said["fastest"]["factory"], said["fastest"]["recall_at_10"]) == ("Flat", 1)
    command = ["eval", "--factory", "Flat", *FILES, "--target-recall", "1"]
    assert "at least 1 is Flat: 1.0000, " in succeed(capsys, *command)


def test_eval_makes_each_index_once_and_before_anything_long(folder, capsys, monkeypatch):
    def made(d, factory, index_factory=commands.index_factory):
        happened.append(factory)
        return index_factory(d, factory)

    def searched(*arguments, search=evaluation.exact_neighbours):
        happened.append("exact search")
        return search(*arguments)

    def checked(x, check=vector_files.first_unusable_row):
        happened.extend(["check of t.npy"] * (len(x) == len(TRAIN)))
        return check(x)

    happened = []
    monkeypatch.setattr(commands, "index_factory", made)
    monkeypatch.setattr(evaluation, "exact_neighbours", searched)
    monkeypatch.setattr(evaluation, "WARM_UP_SECONDS", 0)
    monkeypatch.setattr(vector_files, "first_unusable_row", checked)
    strings = ["PRH,BFlat", "Flat", "PRH,BFlat", "PRH,Flat"]
    rows = evaluated(capsys, *strings)["points"]
    assert [row["factory"] for row in rows] == ["PRH,BFlat", "Flat", "PRH,Flat"]
    assert happened == ["PRH,BFlat", "Flat", "PRH,Flat", "check of t.npy", "exact search"]


def test_lists_of_any_class_need_a_training_vector_each(folder, capsys, monkeypatch):
    command = ["build", "--factory", "Lists", "--train", "t.npy", "-o", "new.prh"]
    for nlist, says in {0: "no lists", 601: "more lists than the 600 training vectors"}.items():
        monkeypatch.setattr(commands, "index_factory", lambda *_, nlist=nlist: SimpleNamespace(nlist=nlist))
        assert refuse(capsys, command, 2) == f"--factory Lists: {says}"


def test_lists_that_are_composed_need_no_training_vector_each(folder, capsys):
    succeed(capsys, "build", "--factory", "IMI2x5,Flat", "--train", "t.npy", "-o", "new.prh")  # 1024 lists


def test_ours_are_told_from_rivals_also_in_grey():
    pytest.importorskip("matplotlib", reason="an extra")
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure

    ours = [f"{prefix}PRH,{kind}" for prefix in ("", "PCA8,") for kind in ("BFlat", "BIVF8", "BHNSW8", "PQ4", "LSH")]
    rivals = ["PQ8", "ITQ8,BFlat", "IVF8,Flat", "RR,LSH", "HNSW8", "Flat"]
    points = [evaluation.Point(name, "", 0.5, 100.0, 8.0) for name in [*ours, *rivals]]
    panel = Figure().add_subplot()
    results.draw(panel, points, "title", 10)
    lines = {line.get_label(): line for line in panel.get_lines()}
    assert list(lines) == [*ours, *rivals]

    def grey(name):
        return np.dot(to_rgb(lines[name].get_color()), [0.299, 0.587, 0.114])

    def is_filled(name):
        return lines[name].get_markerfacecolor() == lines[name].get_color()

    assert max(map(grey, ours)) < min(map(grey, rivals)) - 0.2
    assert {lines[name].get_linestyle() for name in ours} == {"-"}
    assert {lines[name].get_linestyle() for name in rivals} == {"--"}
    assert all(map(is_filled, ours))
    assert not any(map(is_filled, rivals))
    for group in (ours, rivals):
        looks = {(lines[name].get_marker(), lines[name].get_color()) for name in group}
        assert len(looks) == len(group)


def test_a_curve_joins_what_no_other_setting_of_its_index_beats():
    pytest.importorskip("matplotlib", reason="an extra")
    from matplotlib.figure import Figure

    points = [measured(0.9, 10.0), measured(0.5, 100.0), measured(0.8, 9.0), measured(0.7, 50.0)]
    faster = evaluation.Point("Flat", "", 1.0, 200.0, 8.0)  # of another index
    panel = Figure().add_subplot()
    results.draw(panel, [*points, faster], "title", 10)
    curves = [line.get_xydata().tolist() for line in panel.get_lines()]
    assert curves == [[[0.5, 100], [0.7, 50], [0.9, 10]], [[1, 200]]]


def test_a_long_legend_does_not_cover_the_curves(folder, capsys, monkeypatch):
    pytest.importorskip("matplotlib", reason="an extra")
    from matplotlib.figure import Figure

    def saved(figure, *arguments, **options):
        figure.draw_without_rendering()
        panel = figure.axes[0]
        assert not panel.get_legend().get_window_extent().overlaps(panel.get_window_extent())
        covered.append(False)

    covered = []
    monkeypatch.setattr(Figure, "savefig", saved)
    monkeypatch.setattr(evaluation, "WARM_UP_SECONDS", 0)
    given = [word for m in range(1, 6) for word in ("--factory", f"PCA{D},RR{D},PRH{D}({m},2),BFlat")]
    files = ["--train", "t.npy", "--base", "b.npy", "--query", "q.npy"]
    succeed(capsys, "eval", *given, *files, "--plot", "out.png")
    assert covered == [False]


def test_eval_plots(folder, capsys, monkeypatch):
    pytest.importorskip("matplotlib", reason="an extra")
    monkeypatch.setattr(evaluation, "WARM_UP_SECONDS", 0)
    files = ["--factory", "PRH,IVF4,Flat", "--train", "t.npy", "--base", "b.npy", "--query", "q.npy"]
    succeed(capsys, "eval", *files, "--plot", "out.png")
    assert (folder / "out.png").read_bytes().startswith(b"\x89PNG")
    assert "expected a name that ends in .png" in refuse(capsys, ["eval", *files, "--plot", "out.txt"], 2)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert refuse(capsys, ["eval", *files, "--plot", "out.png"], 2) == "--plot: matplotlib is needed to draw"


def test_demo_prints_one_table(capsys, monkeypatch):
    small = demo.comparison(d=16, n_train=500, n_base=800, n_queries=20)
    monkeypatch.setattr(demo, "comparison", lambda: small)
    printed = succeed(capsys, "demo")
    table = [line.split() for line in printed.splitlines() if line.strip().startswith(("PRH  ", "ITQ"))]
    assert [row[0] for row in table] == ["PRH", "ITQ"]
    for row in table:
        recall_at_10, recall_at_100 = map(float, row[-2:])
        assert 0 < recall_at_10 <= recall_at_100 <= 1


# What they refuse


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("", "the following arguments are required: command"),
        ("nonsense", "invalid choice: 'nonsense'"),
        ("demo --nonsense", "unrecognized arguments: --nonsense"),
        ("build --factory PRH,BFlat -o new.prh", "the following arguments are required: --train"),
        ("search i.prh q.npy -k 0 -o r.npz", "argument -k: expected a number from 1"),
        ("search i.prh q.npy -k ten -o r.npz", "argument -k: expected a number from 1"),
        ("search i.prh q.npy --k-factor nan -o r.npz", "argument --k-factor: expected a number from 1"),
        ("train t.npy --bits -8 -o m.prh", "argument --bits: expected a number from 1"),
        ("train t.npy --bits 2000000 -o m.prh", "t.npy to 2000000 bits: d_out must be from 1 to 1048576"),
        ("train t.npy --seed 99999999999999999999 -o m.prh", "argument --seed: expected a number from 0"),
        ("search i.prh q.npy --nprobe 4 -o r.npz", "--nprobe: i.prh has no inverted lists"),
        ("search i.prh q.npy --k-factor 4 -o r.npz", "--k-factor: i.prh does not rank its results again"),
        ("search i.prh q.npy --margin 0.1 -o r.npz", "--margin: i.prh has no margin"),
        ("search i.prh q.npy --margin -0.1 -o r.npz", "argument --margin: expected a number from 0"),
        ("search i.prh q.npy --margin nan -o r.npz", "argument --margin: expected a number from 0"),
        (
            f"eval --factory Flat {' '.join(FILES)} --target-recall 0",
            "argument --target-recall: expected a number above 0",
        ),
        (
            f"eval --factory Flat {' '.join(FILES)} --target-recall 95",
            "argument --target-recall: expected a number from 0 to 1, not '95'",
        ),
        (
            f"eval --factory Flat {' '.join(FILES)} --target-recall nan",
            "argument --target-recall: expected a number from 0 to 1, not 'nan'",
        ),
        ("search i.prh q.npy -k 2000000000 -o r.npz", "-k 2000000000: the results do not fit into memory"),
        ("search i.prh q.npy -o r.npy", "r.npy: results go into an .npz file"),
        ("encode m.prh b.npy -o codes", "codes: codes go into an .npy file"),
        ("build --factory PRH,BNope --train t.npy -o new.prh", "--factory PRH,BNope: 'BNope' is no binary index"),
        ("build --factory Nope --train t.npy -o new.prh", "could not parse index string Nope"),
        ("build --factory BFlat --train t.npy -o new.prh", "--factory BFlat: it takes codes, not vectors"),
        ("build --factory IDMap,PRH,BFlat --train t.npy -o new.prh", "an IDMap needs ids"),
        ("add ids.prh b.npy --trusted", "ids.prh: an IDMap needs ids"),
        ("build --factory PRH,BIVF601 --train t.npy -o new.prh", "more lists than the 600 training vectors"),
        ("build --factory PRH,IVF0,Flat --train t.npy -o new.prh", "without lists"),
        ("build --factory PRH,IVF999999999M,Flat --train t.npy -o new.prh", "lists are more than 16777216"),
        ("build --factory PRH,BIVF1k --train t.npy -o new.prh", "more lists than the 600 training vectors"),
        ("build --factory PRH,IVF601,Flat,RFlat --train t.npy -o new.prh", "more lists than the 600 training vectors"),
    ],
)
def test_wrong_usage(command, says, folder, capsys, monkeypatch):
    monkeypatch.setattr(commands, "_train", None)  # nothing long may begin
    faiss_prh.write_index(faiss.IndexIDMap(faiss.IndexFlatL2(D)), "ids.prh")
    assert says in refuse(capsys, command.split(), 2)


def test_formats_that_are_not_checked(folder, capsys):
    index = faiss_prh.index_factory(D, "PRH(1),RQ2x4")
    index.train(TRAIN)
    index.add(BASE)
    faiss_prh.write_index(index, "rq.prh")
    for command in ("info rq.prh", "search rq.prh q.npy -o r.npz", "add rq.prh q.npy"):
        assert "--trusted" in refuse(capsys, command.split(), 1)
        succeed(capsys, *command.split(), "--trusted")
    assert faiss_prh.read_index("rq.prh", trusted=True).ntotal == len(BASE) + len(QUERY)


FLAT = "--factory PRH,BFlat --train t.npy"


NOT_FINITE = "nan.npy: vector 1234 has a non-finite value, or one too large for float32"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("info none.prh", "none.prh: No such file or directory"),
        ("info .", ".: Is a directory"),
        ("info ''", "'': No such file or directory"),
        ("info b.npy", "b.npy: this is not an index file of faiss-prh"),
        ("info empty.prh", "empty.prh: this is not an index file of faiss-prh"),
        ("info damaged.prh", "damaged.prh: a damaged index file: a checksum does not match"),
        ("info damaged_m.prh", "damaged_m.prh: a damaged PRHTransform: its checksum does not match"),
        ("add m.prh b.npy", "m.prh: a transform, not an index"),
        ("add i.prh narrow.npy", "narrow.npy: expected 16 columns, not 12"),
        ("add i.prh q.npy none.npy", "none.npy: No such file or directory"),
        ("add i.prh q.npy nan.npy", NOT_FINITE),
        ("add i.prh empty.npy", "empty.npy: damaged, or no .npy file of numbers"),
        ("add i.prh .", ".: expected a .npy, .npz, .fvecs, .bvecs or .hdf5 file"),
        ("add untrained.prh b.npy", "untrained.prh: an index that is not trained"),
        ("add codes.prh b.npy", "codes.prh: an index of codes, not of vectors"),
        ("search i.prh narrow.npy -o r.npz", "narrow.npy: expected 16 columns, not 12"),
        ("search float.prh nan.npy -o r.npz --trusted", NOT_FINITE),
        ("encode i.prh b.npy -o codes.npy", "i.prh: not a transform written by `faiss-prh train`"),
        ("encode untrained_m.prh b.npy -o codes.npy", "untrained_m.prh: a transform that is not trained"),
        ("encode m.prh narrow.npy -o codes.npy", "narrow.npy: expected 16 columns, not 12"),
        ("encode m.prh nan.npy -o codes.npy", NOT_FINITE),
        ("encode m.prh b.npy -o b.npy", "b.npy: the output would replace an input"),
        ("encode m.prh b.npy -o full.npy", "full.npy: No space left on device"),
        (f"build {FLAT} --add narrow.npy -o new.prh", "narrow.npy: expected 16 columns, not 12"),
        (f"build {FLAT} -o none/new.prh", "none/new.prh: No such file or directory"),
        (f"build {FLAT} -o .", ".: Is a directory"),
        (f"build {FLAT} -o ''", "'': Is a directory"),
        (f"build {FLAT} -o t.npy/new.prh", "t.npy/new.prh: Not a directory"),
        ("build --factory PRH,BFlat --train none/t.npy -o new.prh", "none/t.npy: No such file or directory"),
        ("build --factory PRH,BFlat --train folder.npy -o new.prh", "folder.npy: Is a directory"),
        (f"build {FLAT} --add t.npy/b.npy -o new.prh", "t.npy/b.npy: Not a directory"),
        ("train t.npy -o none/m.prh", "none/m.prh: No such file or directory"),
        ("train none/t.npy -o m.prh", "none/t.npy: No such file or directory"),
        ("add none/i.prh b.npy", "none/i.prh: No such file or directory"),
        ("add . b.npy", ".: Is a directory"),
        ("search none.prh q.npy -o r.npz", "none.prh: No such file or directory"),
        ("search . q.npy -o r.npz", ".: Is a directory"),
        ("search i.prh/x q.npy -o r.npz", "i.prh/x: Not a directory"),
        ("search i.prh q.npy -o none/r.npz", "none/r.npz: No such file or directory"),
        ("search i.prh q.npy -o folder.npz", "folder.npz: Is a directory"),
        ("search ./damaged.prh q.npy -o r.npz", "./damaged.prh: a damaged index file: a checksum does not match"),
        ("encode none.prh b.npy -o codes.npy", "none.prh: No such file or directory"),
        ("encode . b.npy -o codes.npy", ".: Is a directory"),
        ("encode m.prh none.npy -o codes.npy", "none.npy: No such file or directory"),
        ("encode m.prh b.npy -o none/codes.npy", "none/codes.npy: No such file or directory"),
        (f"eval {FLAT} --base b.npy --query q.npy --plot none/out.png", "none/out.png: No such file or directory"),
        (f"eval {FLAT} --base none.npy --query q.npy", "none.npy: No such file or directory"),
        (f"build {FLAT} -o t.npy", "t.npy: the output would replace an input"),
        (f"build {FLAT} -o {'x' * 300}", f"{'x' * 300}: File name too long"),
        (f"eval {FLAT} --base few.npy --query q.npy", "few.npy: expected at least 10 vectors, not 9"),
        (f"eval {FLAT} --base b.npy --query nan.npy", NOT_FINITE),
    ],
)  # fmt: skip
def test_failures(command, says, folder, capsys, monkeypatch):
    damaged = bytearray((folder / "i.prh").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (folder / "damaged.prh").write_bytes(damaged)
    damaged = bytearray((folder / "m.prh").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (folder / "damaged_m.prh").write_bytes(damaged)
    for name in ("empty.prh", "empty.npy"):
        (folder / name).touch()
    faiss_prh.write_index(faiss_prh.index_factory(D, "PRH,BFlat"), "untrained.prh")
    faiss_prh.write_index(faiss.IndexBinaryFlat(D), "codes.prh")
    faiss_prh.write_index(faiss.IndexFlatL2(D), "float.prh")
    (folder / "untrained_m.prh").write_bytes(PRHTransform(D).to_bytes())
    (folder / "full.npy").symlink_to("/dev/full")
    for name in ("folder.npy", "folder.npz"):
        (folder / name).mkdir()
    np.save("few.npy", BASE[:9])
    bad = BASE.copy()
    bad[1234, 5] = np.nan
    np.save("nan.npy", bad)
    before = {path: digest(path) for path in folder.iterdir() if path.is_file()}
    monkeypatch.setattr(commands, "_train", None)  # nothing long may begin

    assert refuse(capsys, shlex.split(command), 1) == says
    assert {path: digest(path) for path in folder.iterdir() if path.is_file()} == before


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("factory", ["PRH,BFlat", "PCA8,PRH,Flat", "ITQ8,BFlat"])
def test_training_on_nan(factory, folder, capsys):
    np.save("t.npy", np.where(np.arange(600)[:, None] == 77, np.inf, TRAIN))
    command = ["build", "--factory", factory, "--train", "t.npy", "-o", "new.prh"]
    assert refuse(capsys, command, 1) == "t.npy: vector 77 has a non-finite value, or one too large for float32"


def test_what_training_says_is_one_line_with_the_file(folder, capsys):
    np.save("t.npy", TRAIN[:5])
    command = ["build", "--factory", "PRH,PQ4x4", "--train", "t.npy", "-o", "new.prh"]
    message = refuse(capsys, command, 1)
    assert message.startswith("t.npy: ")
    assert "Error in" not in message


def test_a_name_from_a_file_cannot_write_on_the_terminal(folder, capsys):
    np.savez("x.npz", **{"a\x1b[2J\n": BASE, "b": BASE})
    assert refuse(capsys, ["add", "i.prh", "x.npz"], 1).startswith("x.npz: it holds a?[2J")


@pytest.mark.parametrize("failing", ["write", "sync"])
def test_a_full_disk_leaves_the_old_index(failing, folder, capsys, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if failing == "sync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(commands, "write_index", full)
    before = digest(folder / "i.prh")
    names = set(os.listdir())
    assert refuse(capsys, ["add", "i.prh", "b.npy"], 1) == "i.prh: No space left on device"
    assert (digest(folder / "i.prh"), set(os.listdir())) == (before, names)


def test_a_file_that_cannot_be_renamed_is_called_what_the_user_called_it(folder, capsys, monkeypatch):
    def refused(source, target):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(source), None, str(target))

    monkeypatch.setattr(Path, "replace", refused)
    monkeypatch.setattr(os, "replace", refused)
    assert refuse(capsys, ["add", "./i.prh", "b.npy"], 1) == "./i.prh: Permission denied"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_what_is_not_permitted(folder, capsys):
    (folder / "i.prh").chmod(0)
    assert refuse(capsys, ["info", "i.prh"], 1) == "i.prh: Permission denied"
    folder.chmod(0o500)
    try:
        assert refuse(capsys, ["train", "t.npy", "-o", "new.prh"], 1) == "new.prh: Permission denied"
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("message", ["damaged", "i.prh: damaged"])
def test_a_file_is_named_once(message, folder, capsys, monkeypatch):
    def damaged(path, trusted):
        raise ValueError(message)

    monkeypatch.setattr(files, "read_index", damaged)
    assert refuse(capsys, ["info", "i.prh"], 1) == "i.prh: damaged"


def test_a_name_that_cannot_be_printed_is_no_failure_after_the_work(folder):
    name = os.fsdecode(b"\xff.prh")
    process = start(RUN, "train", "t.npy", "-o", name, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert out.startswith("\\udcff.prh: trained in")
    assert Path(name).exists()


def test_without_tqdm_nothing_is_drawn(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert "now 3000" in succeed(capsys, "add", "i.prh", "b.npy")


# Processes


def start(code, *arguments, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""}  # output buffered, as it usually is
    return subprocess.Popen([sys.executable, "-c", code, *arguments], env=environment, text=True, **options)


ANNOUNCED = """
import hashlib, sys, threading
from faiss_prh.cli import commands, main
from faiss_prh.index import pretransform as index

def announced(files, title, batches=commands.batches):
    for number, batch in enumerate(batches(files, title)):
        if number == 1:
            print("running", flush=True)
        yield batch

def endless(self, x):
    threading.Timer(0.3, print, ["running"], {"flush": True}).start()  # once the main thread is in native code
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # native, and for many minutes

commands.batches = announced
if sys.argv[1] == "build":
    index.IndexBinaryPreTransform.train = endless
sys.exit(main())
"""


@pytest.mark.parametrize("command", ["add h.prh many.npy", "build --factory PRH,BFlat --train t.npy -o h.prh"])
def test_an_interrupt_leaves_the_old_index(command, folder):
    index = faiss_prh.IndexBinaryPreTransform(PRHTransform.random(D), faiss.IndexBinaryHNSW(D, 64))
    index.index.hnsw.efConstruction = 400
    faiss_prh.write_index(index, "h.prh")
    np.save("many.npy", RNG.normal(size=(400_000, D)).astype("f4"))
    before, names = digest(folder / "h.prh"), set(os.listdir())
    process = start(ANNOUNCED, *command.split(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, "", "faiss-prh: interrupted\n")
    assert (digest(folder / "h.prh"), set(os.listdir())) == (before, names)


def test_an_interrupt_inside_faiss_is_one(folder, capsys, monkeypatch):
    def search_in_cpp(*arguments):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise RuntimeError("computation interrupted")

    monkeypatch.setattr(commands, "search", search_in_cpp)
    assert refuse(capsys, ["search", "i.prh", "q.npy", "-o", "r.npz"], 130) == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # until the process has ended


@pytest.mark.parametrize("command", ["info i.prh", "--help"])
def test_a_full_disk_under_standard_output(command, folder):
    with open("/dev/full", "w") as full:
        process = start(RUN, *command.split(), stdout=full, stderr=subprocess.PIPE)
    assert process.communicate()[1] == "faiss-prh: standard output: No space left on device\n"
    assert process.returncode == 1


@pytest.mark.parametrize("command", ["info i.prh", "--help"])
def test_a_reader_that_goes_away_is_no_traceback(command, folder):
    reading, writing = os.pipe()
    os.close(reading)
    process = start(RUN, *command.split(), stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert process.communicate()[1] == ""
    assert process.returncode == 1


def test_a_terminal_shows_a_bar_with_a_rate(folder):
    pytest.importorskip("tqdm", reason="an extra")
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = start(RUN, "add", "i.prh", "b.npy", stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    assert "now 3000" in process.communicate()[0]
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "adding" in shown
    assert "vectors/s" in shown


# Interrupts at any moment

INTERRUPTED_AT_IMPORT = """
import os, sys
from faiss_prh.cli import main

class Interrupting:
    imported = 0

    def find_spec(name, path, target=None):
        Interrupting.imported += 1
        if when in (name, str(Interrupting.imported)):
            os.kill(os.getpid(), 2)
        if name == "faiss_prh.cli.run":
            print("importing", flush=True)

when = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupting)
sys.exit(main())
"""


def finished(process):
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


@pytest.mark.parametrize("number", [1, 2, 3, 9, 20, 60, 120, 200, 250])
def test_an_interrupt_of_any_import_is_one_line(number, folder):
    process = start(INTERRUPTED_AT_IMPORT, str(number), "info", "i.prh", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    returned, out, err = finished(process)
    assert (returned, err) == (130, "faiss-prh: interrupted\n")
    assert "factory" not in out


@pytest.mark.parametrize("command", ["info i.prh", "add i.prh q.npy"])
def test_interrupts_at_all_times(command, folder):
    for milliseconds in (0, 10, 50, 100, 200, 300, 400, 500):
        before = digest(folder / "i.prh")
        process = start(
            INTERRUPTED_AT_IMPORT, "never", *command.split(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout.readline() == "importing\n"
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGINT)
        returned, _, err = finished(process)
        assert (returned, err) in [(0, ""), (130, "faiss-prh: interrupted\n")], milliseconds
        if command.startswith("add"):
            assert (returned == 130) == (digest(folder / "i.prh") == before)
        assert not list(folder.glob(".*.tmp"))


INTERRUPTED_RENAME = """
import os, signal, sys
from pathlib import Path

def interrupted(replace):
    def replacing(*arguments):
        if when == "before":
            signal.raise_signal(signal.SIGINT)
        replace(*arguments)
        if when == "after":
            signal.raise_signal(signal.SIGINT)
    return replacing

def interrupted_sync(descriptor, fsync=os.fsync):
    fsync(descriptor)
    if when == "sync":
        signal.raise_signal(signal.SIGINT)

when = sys.argv.pop(1)
os.replace, Path.replace, os.fsync = interrupted(os.replace), interrupted(Path.replace), interrupted_sync
"""


@pytest.mark.parametrize(("when", "code"), [("sync", 130), ("before", 0), ("after", 0)])
def test_the_exit_code_tells_whether_the_file_was_replaced(when, code, folder):
    names = set(os.listdir())
    command = ["add", "i.prh", "q.npy"]
    process = start(INTERRUPTED_RENAME + RUN, when, *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    returned, out, err = finished(process)
    said = ("now 1520" in out, err)
    assert (returned, *said) == ((130, False, "faiss-prh: interrupted\n") if code else (0, True, ""))
    assert faiss_prh.read_index("i.prh").ntotal == (1500 if code else 1520)
    assert set(os.listdir()) == names


@pytest.mark.parametrize("module", ["h5py", "tqdm", "matplotlib.figure"])
def test_an_interrupted_import_of_an_extra_is_one_line(module, folder):
    pytest.importorskip(module, reason="an extra")
    (folder / "x.hdf5").touch()
    command = {
        "h5py": "add i.prh x.hdf5",
        "tqdm": "add i.prh q.npy",
        "matplotlib.figure": "eval --factory Flat --train t.npy --base b.npy --query q.npy --plot out.png",
    }[module]
    process = start(INTERRUPTED_AT_IMPORT, module, *command.split(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert finished(process) == (130, "importing\n", "faiss-prh: interrupted\n")


def test_interrupts_ignored_by_the_parent_stay_ignored(folder):
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + INTERRUPTED_AT_IMPORT
    process = start(code, "100", "add", "i.prh", "q.npy", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    returned, out, err = finished(process)
    assert (returned, err) == (0, "")
    assert "now 1520" in out


# Help


def test_what_needs_no_vectors_is_answered_without_numpy():
    for command in (["--help"], ["build", "--help"], ["--version"], ["search", "i.prh"], []):
        code = f"""
import sys
from faiss_prh.cli import main
try:
    main({command})
except SystemExit:
    pass
assert not {{"numpy", "faiss"}} & sys.modules.keys()
"""
        assert start(code, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait() == 0, command


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "faiss_prh.cli", "--version"], capture_output=True, text=True)
    assert done.stdout == f"faiss-prh {importlib.metadata.version('faiss-prh')}\n"


def subparsers():
    actions = next(action for action in new_parser()._actions if hasattr(action, "choices") and action.choices)
    return actions.choices


@pytest.mark.parametrize("name", subparsers())
def test_help_explains_every_argument_and_has_an_example(name):
    parser = subparsers()[name]
    assert parser.description
    assert all(action.help for action in parser._actions)
    examples = [line.strip() for line in parser.format_help().splitlines() if line.startswith("  faiss-prh ")]
    assert len(examples) == 1
    program, *arguments = shlex.split(examples[0])
    assert (program, arguments[0]) == ("faiss-prh", name)
    assert new_parser().parse_args(arguments).command == name


def test_help_of_the_whole():
    assert all(action.help for action in new_parser()._actions)


@pytest.mark.parametrize("command", ["build", "eval"])
def test_the_factory_strings_in_the_help_make_indexes(command):
    grammar = subparsers()[command].format_help()
    strings = grammar.rpartition("no ids to give.")[2].split()
    assert len(strings) == 7
    for string in strings:
        faiss_prh.index_factory(128, string)


@pytest.mark.parametrize("command", ["add", "search", "info"])
def test_commands_that_read_an_index_say_what_trusted_means(command):
    said = " ".join(subparsers()[command].format_help().split())
    assert "Faiss's own bytes (a float index), which are not checked: use it only for files you made or trust" in said


# The package


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_public_names_are_there_on_first_use():
    done = run_python(
        """
import sys, faiss_prh, faiss_prh.cli
assert "numpy" not in sys.modules
assert not hasattr(faiss_prh, "__wrapped__") and "numpy" not in sys.modules
import pickle
index = faiss_prh.index_factory(8, "PRH,BFlat")
assert pickle.loads(pickle.dumps(index)).d == 8
assert vars(faiss_prh)["PRHTransform"] is faiss_prh.transform.PRHTransform
assert set(faiss_prh.__all__) < set(dir(faiss_prh))
assert not hasattr(faiss_prh, "nonsense")
"""
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "from faiss_prh import *; assert PRHTransform and write_index and index_factory",
        "from faiss_prh import IndexBinaryRefine, _backend, rotation",
        "import faiss_prh; assert 'read_index' in dir(faiss_prh); assert faiss_prh.__all__",
        "import faiss_prh; faiss_prh.rotation.PairwiseRotation if faiss_prh.PRHTransform else None",
        "import faiss_prh.transform; faiss_prh.index_factory(8, 'PRH,BFlat')",
    ],
)
def test_ways_to_import(code):
    done = run_python(code)
    assert done.returncode == 0, done.stderr
