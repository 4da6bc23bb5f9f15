"""Whatever a page or workflow sends: a preset, or one sentence."""

from __future__ import annotations

import json

from fuzzing import documents, fuzzed
from hypothesis import example, given
from hypothesis import strategies as st
from paceline.core.errors import PacelineError

NAMES = st.one_of(
    st.text(),
    documents,
    st.sampled_from(["lab", " lab ", "../x", "sqlite:///x", "a" * 200]),
)


STEPS = st.one_of(
    documents,
    st.fixed_dictionaries(
        {"node": st.sampled_from(["PacelineApplyToMe", "PacelineCompareModels", "x"]), "inputs": documents}
    ),
)


def preset(exclude, **more):
    return {"name": "mine", "steps": [{"node": "PacelineQuantizeInt8", "inputs": {"exclude": exclude}}], **more}


@fuzzed
@example(sent=preset("half of a character: \ud800"))
@example(sent=preset("a", description="half of a character: \ud800"))
@example(sent=preset("a" * 2_000_000))
@given(st.one_of(documents, st.fixed_dictionaries({"name": NAMES, "steps": st.lists(STEPS, max_size=3)})))
def test_presets_that_are_sent(user_folder, sent):
    from paceline.nodes import NODES
    from paceline.server.routes import save_preset

    try:
        save_preset(sent, NODES)
    except PacelineError as error:
        assert str(user_folder) not in str(error)
    presets = user_folder / "__paceline" / "presets"
    assert all(path.stat().st_size <= 1 << 20 for path in presets.glob("*.json"))
    assert all(path.parent == presets for path in user_folder.rglob("*.json"))


@fuzzed
@given(extra=st.one_of(documents, st.fixed_dictionaries({"extra_pnginfo": documents})))
def test_a_prompt_with_anything_beside_it_costs_no_other_page_its_run(comfy, extra):
    from contextlib import nullcontext
    from types import SimpleNamespace

    from paceline.server.run_routes import run_payload

    strange = {"prompt": (1, "strange", {}, extra, []), "outputs": {}, "status": {"messages": []}}
    mine = {**strange, "prompt": (0, "mine", {}, {"extra_pnginfo": {"workflow": {"id": "w"}}}, [])}
    queue = SimpleNamespace(mutex=nullcontext(), currently_running={}, history={"mine": mine, "strange": strange})
    assert run_payload(SimpleNamespace(prompt_queue=queue), "mine")["workflow"] == {"id": "w"}


PROMPTS = st.dictionaries(
    st.sampled_from(["1", "2", "a:3"]),
    st.fixed_dictionaries(
        {
            "class_type": st.sampled_from(["KSampler", "CheckpointLoaderSimple", "ComfySwitchNode", "CFGGuider", "x"]),
            "inputs": st.dictionaries(
                st.sampled_from(["model", "sigmas", "steps", "switch", "on_true", "guider", "seed"]),
                st.one_of(documents, st.tuples(st.sampled_from(["1", "2", "a:3"]), st.integers(-1, 3)).map(list)),
                max_size=4,
            ),
        }
    ),
    max_size=3,
)
QUESTIONS = st.fixed_dictionaries(
    {"do": st.sampled_from(["look", "run", "next", "keep", "prove", "drop"])},
    optional={
        "prompt": st.one_of(PROMPTS, documents),
        "choice": st.sampled_from(["lossless", "balanced", "fast", "x"]),
        "run": st.one_of(st.text(max_size=5), documents),
        "offer": st.one_of(st.integers(), documents),
        "seconds": st.one_of(st.dictionaries(st.text(max_size=3), st.floats(), max_size=3), documents),
    },
)


@fuzzed
@given(sent=st.one_of(documents, QUESTIONS))
def test_questions_about_a_workflow(comfyui, sent):
    from paceline.nodes import NODES
    from paceline.server.faster.state import faster_payload

    try:
        json.dumps(faster_payload(sent, NODES), allow_nan=False)
    except PacelineError as error:
        assert str(error)
