"""docs/TRUST.md is what the runs have found."""

from __future__ import annotations

import json


def test_the_document_has_the_numbers_of_the_runs_and_says_what_was_not_run(tmp_path, monkeypatch):
    import report

    monkeypatch.setattr(report, "DOCUMENT", tmp_path / "TRUST.md")
    wrong = {"seed": 7, "graph": "x", "problems": ["baseline afterwards differs by 0.5"]}
    graphs = {"graphs": 3, "states": {"right": 2, "wrong": 1}, "faults": {"memory": 1}, "wrong": [wrong]}
    graphs |= {"nodes": {"PacelineFuseQKV": 2, "APG": 1}, "minutes": 4.2, "growth": {"modules": 0.25}, "commit": "abc"}
    (tmp_path / "graphs.json").write_text(json.dumps(graphs))
    report.write(tmp_path)
    text = (tmp_path / "TRUST.md").read_text()
    assert "| Graphs drawn | 3 |" in text and "| of these wrong | 1 |" in text
    assert "- seed 7: baseline afterwards differs by 0.5" in text and "4 minutes, at commit abc." in text
    assert text.count("Not run this time.") == 3
