"""docs/TRUST.md is what the runs have found."""

from __future__ import annotations

import json


def test_the_document_has_what_was_found_and_keeps_what_was_not_run_again(tmp_path, monkeypatch):
    import report

    document = tmp_path / "TRUST.md"
    monkeypatch.setattr(report, "DOCUMENT", document)

    def found(name, tried, **more):
        content = {"tried": f"{tried} graphs", "rows": [["drawn", tried]], "wrong": [], "minutes": 4.2, **more}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))

    found("graphs", 31, commit="abc", wrong=["seed 7: differs by 0.5\nTraceback"], below="No growth.")
    found("packs", 32)
    report.write(tmp_path)
    before = document.read_text()
    assert "| [Random graphs](#random-graphs) | 31 graphs | 1 |" in before.split("## ")[0]
    assert "| drawn | 31 |\n\n4 minutes, at commit abc.\n\nNo growth.\n\nWrong in this run:" in before
    assert "\n- seed 7: differs by 0.5\n" in before and "Traceback" not in before
    assert before.count("Not run this time.") == len(report.TITLES) - 2
    (tmp_path / "graphs.json").unlink()
    report.write(tmp_path)
    assert document.read_text() == before
    found("packs", 34)
    report.write(tmp_path)
    assert document.read_text() == before.replace("| 32", "| 34")
