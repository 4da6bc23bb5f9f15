"""docs/TRUST.md is what the runs have found."""

from __future__ import annotations

import json


def test_the_document_has_the_numbers_of_the_runs_and_says_what_was_not_run(tmp_path, monkeypatch):
    import report

    monkeypatch.setattr(report, "DOCUMENT", tmp_path / "TRUST.md")
    wrong = {"seed": 7, "graph": "x", "problems": ["baseline afterwards differs by 0.5"]}
    wrong |= {"again": "right", "commit": "def"}
    graphs = {"graphs": 3, "states": {"right": 2, "wrong": 1}, "faults": {"memory": 1}, "wrong": [wrong]}
    graphs |= {"nodes": {"PacelineFuseQKV": 2, "APG": 1}, "minutes": 4.2, "growth": {"modules": 0.25}, "commit": "abc"}
    (tmp_path / "graphs.json").write_text(json.dumps(graphs))
    report.write(tmp_path)
    text = (tmp_path / "TRUST.md").read_text()
    assert "| [Random graphs](#random-graphs) | 3 graphs | 1 |" in text.split("## ")[0]
    assert "| Graphs drawn | 3 |" in text and "| of these wrong | 1 |" in text
    assert "- seed 7: baseline afterwards differs by 0.5. Drawn again at commit def: right" in text
    assert "4 minutes, at commit abc." in text
    assert text.count("Not run this time.") == len(report.PARTS) - 1


def test_what_was_not_run_again_stays_as_it_was(tmp_path, monkeypatch):
    import report

    monkeypatch.setattr(report, "DOCUMENT", tmp_path / "TRUST.md")
    graphs = {"states": {"right": 2}, "faults": {}, "wrong": [], "nodes": {}, "minutes": 1.0, "growth": {}}
    parts = {"graphs": 31, "packs": 32, "inductor": 33}
    for name, count in parts.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({**graphs, "graphs": count}))
    report.write(tmp_path)
    before = (tmp_path / "TRUST.md").read_text()
    for name in ("graphs", "inductor"):
        (tmp_path / f"{name}.json").unlink()
    report.write(tmp_path)
    assert (tmp_path / "TRUST.md").read_text() == before
    (tmp_path / "packs.json").write_text(json.dumps({**graphs, "graphs": 34}))
    report.write(tmp_path)
    assert (tmp_path / "TRUST.md").read_text() == before.replace("| 32", "| 34")
