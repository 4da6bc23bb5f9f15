"""What notices that a fault has left half a file; the faults themselves are in ``make trust``."""

from __future__ import annotations


def test_files_that_are_not_whole_are_found(tmp_path):
    import faults

    (tmp_path / "half.json").write_text('{"a": ')
    (tmp_path / "half.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{")
    (tmp_path / "half.png").write_bytes(b"\x89PNG")
    (tmp_path / "whole.json").write_text("{}")
    assert len(faults.broken_files(tmp_path)) == 3
