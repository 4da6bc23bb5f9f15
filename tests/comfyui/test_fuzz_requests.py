"""Whatever the server's file of storages holds, or a page or workflow sends: a storage, a preset, or one sentence."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paceline.core.errors import PacelineError

fuzzed = settings(
    max_examples=int(os.environ.get("PACELINE_FUZZ", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

SECRET = "postgresql+psycopg://me:hunter2@db.example/lab"
documents = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=10), inner, max_size=3)),
    max_leaves=8,
)
CONTENTS = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"[" * 100_000, b'{"lab": "' + SECRET.encode()]),
    documents.map(lambda document: json.dumps({"lab": SECRET, "other": document}).encode()),
    documents.map(lambda document: json.dumps(document).encode()),
)
NAMES = st.one_of(
    st.text(),
    documents,
    st.sampled_from(["lab", " lab ", SECRET, "{SCHEMA_VERSION!s:.0}sqlite:////x", "../x", "sqlite:///x", "a" * 200]),
)


@fuzzed
@given(content=CONTENTS, name=NAMES)
def test_storages(user_folder, content, name):
    from paceline.optimizers.hosts.comfyui.paths import user_folder as ours
    from paceline.workbench.comfyui.sweeping.storages import storage_named

    file = ours("storages.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    try:
        found = storage_named(name)
    except PacelineError as error:
        assert "hunter2" not in str(error) and str(user_folder) not in str(error)
        return
    assert "hunter2" not in repr(found)
    assert found.url == SECRET or str(user_folder) in found.url or json.loads(content)[name.strip()] == found.url


STEPS = st.one_of(
    documents,
    st.fixed_dictionaries(
        {"node": st.sampled_from(["PacelineApplyToMe", "PacelineCompareModels", "x"]), "inputs": documents}
    ),
)


@fuzzed
@given(st.one_of(documents, st.fixed_dictionaries({"name": NAMES, "steps": st.lists(STEPS, max_size=3)})))
def test_presets_that_are_sent(user_folder, sent):
    from paceline.nodes import NODES
    from paceline.server.routes import save_preset

    try:
        save_preset(sent, NODES)
    except PacelineError as error:
        assert str(user_folder) not in str(error)
    presets = user_folder / "__paceline" / "presets"
    assert all(path.parent == presets or path.name == "storages.json" for path in user_folder.rglob("*.json"))


@fuzzed
@given(extra=st.one_of(documents, st.fixed_dictionaries({"extra_pnginfo": documents})))
def test_a_prompt_with_anything_beside_it_costs_no_other_page_its_run(comfy, extra):
    from contextlib import nullcontext
    from types import SimpleNamespace

    from paceline.server.run_routes import run_payload

    strange = {"prompt": (1, "strange", {}, extra, []), "outputs": {}, "status": {"messages": []}}
    mine = {**strange, "prompt": (0, "mine", {}, {"extra_pnginfo": {"workflow": {"id": "w"}}}, [])}
    queue = SimpleNamespace(mutex=nullcontext(), currently_running={}, history={"mine": mine, "strange": strange})
    found = run_payload(SimpleNamespace(prompt_queue=queue), workflow="w")
    assert found is not None and found["prompt_id"] == "mine"


@fuzzed
@given(value=st.one_of(documents, st.sampled_from([1e308, 10**400, float("nan"), "x", [], {}])))
def test_values_of_other_nodes(comfy, value):
    from paceline.nodes import NODES
    from paceline.server.foreign import KNOWN, converted_inputs

    for node, known in KNOWN.items():
        old = dict.fromkeys([*known.widgets, "backend"], value)
        json.dumps(converted_inputs(node, old, NODES), allow_nan=False)


def test_a_workflow_of_too_many_nodes_is_one_sentence(comfy):
    from paceline.nodes import NODES
    from paceline.server.advice import advice_payload

    node = {"class_type": "LoraLoaderModelOnly", "inputs": {}}
    with pytest.raises(PacelineError, match="has 3001 nodes. At most 3000"):
        advice_payload({str(number): node for number in range(3001)}, NODES)
