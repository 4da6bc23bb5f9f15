"""Damaged files and full disks on one server; killed servers, two servers and launch flags are in ``make trust``."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.thorough
def test_damaged_files_are_said_or_done_without(client, server):
    import faults

    tried, problems = faults.damaged_files(client, server.base_directory, seed=1)
    assert tried >= 20 and not problems, "\n".join(problems)


@pytest.mark.thorough
def test_full_and_read_only_disks_are_said_in_one_sentence(client, server, tmp_path):
    import faults

    if not faults.can_mount(tmp_path / "probe"):
        pytest.skip("mounting a small disk takes the rights of an administrator")
    tried, problems = faults.full_and_read_only_disks(client, server.base_directory)
    assert tried == 24 and not problems, "\n".join(problems)


def test_files_that_are_not_whole_are_found(tmp_path):
    import faults

    (tmp_path / "half.json").write_text('{"a": ')
    (tmp_path / "half.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{")
    (tmp_path / "half.png").write_bytes(b"\x89PNG")
    (tmp_path / "whole.json").write_text("{}")
    assert len(faults.broken_files(tmp_path)) == 3
