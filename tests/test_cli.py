import pytest

from faiss_prh import demo
from faiss_prh.cli import main


def test_demo_prints_one_table(capsys, monkeypatch):
    small = demo.comparison(d=16, n_train=500, n_base=800, n_queries=20)
    monkeypatch.setattr(demo, "comparison", lambda: small)
    main(["demo"])
    printed = capsys.readouterr().out
    table = [line.split() for line in printed.splitlines() if line.startswith(("PRH  ", "ITQ"))]
    assert [row[0] for row in table] == ["PRH", "ITQ"]
    for row in table:
        recall_at_10, recall_at_100 = map(float, row[-2:])
        assert 0 < recall_at_10 <= recall_at_100 <= 1


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["demo", "--nonsense"]])
def test_mistakes_are_one_line_and_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("faiss-prh: error: ")
