"""The search for what makes a workflow fastest: which picture to draw next, and which trades were found.

Each picture is one prompt: the workflow's own nodes draw the plain picture and a candidate's from the same seed. The
plain ones are in every prompt, so that ComfyUI draws them once. Nothing is remembered between requests: what was drawn
so far comes with each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from ..core.errors import InvalidSetting, require_choice
from ..optimizers.hosts.comfyui.reporting import Payload
from ..optimizers.step_reuse.settings import BUDGETS
from ..workbench.comfyui.prompt import Link, default_values, link_of
from ..workbench.comfyui.runnable import why_refused
from ..workbench.comfyui.seeds import SEEDS, later_seed
from ..workbench.comfyui.workflow import Workflow
from ..workbench.measurement.verdict_text import fraction
from ..workbench.search.engine import FIRST, MOST, PICTURES, DrawnPicture, Search, Trade
from ..workbench.search.space import Candidate
from .knobs import REUSE_STEPS, Knobs, find_knobs
from .recipes import shown_steps
from .trial_scene import NotMeasurable, decoder, draws, sampled
from .wires import Wire, is_second_model, upstream

SEARCH = "/paceline/search"

_NODE = "paceline_trial"
"""Id of the measuring node: the page tells measuring prompts from runs by its beginning; see web/js/run_prompt.js."""

_NOTE = "The model's own pictures of one seed differ by {} of a seed change, so others may differ as much."

Nodes = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class _Task:
    """What is searched for on one wire.

    ``prompt`` has those of the inserted nodes that make a step faster, ``plain`` has none. ``before`` is the link that
    the ``receivers`` have today, ``behind`` the link after the inserted nodes. ``own`` are the inserted nodes that the
    search tries itself.
    """

    prompt: Workflow
    plain: Workflow
    receivers: Sequence[tuple[str, str]]
    before: Any
    behind: Any
    end: Link
    knobs: Knobs
    own: Sequence[str]


def search_payload(sent: Any) -> Payload:
    """Return what to draw next, or nothing where all is known, and the best trades; `InvalidSetting` if unreadable.

    ``sent`` has ``prompt``; ``receivers``, pairs of node and input; ``chain``, execution ids of the nodes before them
    that were inserted; ``kept``, those of them that were found to make a step faster, ``faster`` times; ``choice``;
    ``fixed``, pairs of node and input that cannot be set; ``drawn``, what was shown of each picture so far; and
    ``most``, how many plain pictures' work it may be (default ``MOST``).
    """
    try:
        require_choice("choice", sent["choice"], tuple(BUDGETS))
        shown, most = list(sent["drawn"]), float(sent.get("most", MOST))
        task = _task(sent)
        drawn = [_read(one) for one in shown]
        own = max((float(one["repeat"] or 0.0) for one in shown), default=0.0)
        limit = max(BUDGETS[sent["choice"]], own)
        if any(one["repeat"] is None for one in shown):
            raise NotMeasurable("Another seed draws the same picture here, so there is nothing to judge pictures by.")
        search = Search(replace(task.knobs.space, limit=limit), drawn)
        found = search.next() if search.work < most else None
        prompt = None if found is None else _prompt(task, *found, limit)
        if prompt is not None and not drawn and (refused := why_refused(prompt, _NODE)):
            raise NotMeasurable(refused)
        return {
            "why_not": "",
            "prompt": prompt,
            "label": "" if found is None else task.knobs.label(found[0]),
            "pictures": search.work,
            "most": most,
            "first": FIRST,
            "steps": task.knobs.space.plain.steps,
            "note": _NOTE.format(fraction(own)) if own > BUDGETS[sent["choice"]] else "",
            "own": list(task.own),
            "sites": [{"node": node, "input": put} for node, put in task.knobs.sites.values()],
            "trades": [_trade(task.knobs, trade, shown) for trade in search.trades()],
        }
    except InvalidSetting:
        raise
    except NotMeasurable as error:
        nothing: Payload = {"label": "", "pictures": 0.0, "most": 0.0, "first": 0.0, "steps": 0, "note": ""}
        return {"why_not": str(error), "prompt": None, **nothing, "own": [], "sites": [], "trades": []}
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError, AttributeError) as error:
        needed = "Send prompt, receivers, chain, kept, faster, choice, fixed and drawn."
        raise InvalidSetting("This search cannot be read.", needed) from error


def _task(sent: Mapping[str, Any]) -> _Task:
    whole, chain = Workflow.read(sent["prompt"]), [str(id) for id in sent["chain"]]
    kept = [str(id) for id in sent["kept"]]
    receivers = [(str(one["node"]), str(one["input"])) for one in sent["receivers"]]
    own = [id for id in chain if whole.type(id) == REUSE_STEPS]
    prompt = whole.without([id for id in chain if id not in kept])
    plain = prompt.without(kept)
    behind, before = ([one.inputs(node).get(put) for node, put in receivers] for one in (prompt, plain))
    origin = link_of(before[0]) if before else None
    if origin is None or any(link != before[0] for link in before):
        raise NotMeasurable("What is to be faster is not in the workflow that would run.")
    if any(is_second_model(plain, node, put) for node, put in receivers):
        raise NotMeasurable("The first model of a guider decides how both are sampled.")
    users = {node: None for node, _ in receivers} | plain.users([node for node, _ in receivers])
    end = sampled(plain, users)
    latents = [id for id in users if "LATENT" in plain.gives(id)]
    if sum(_samples(plain, id, receivers) for id in latents) > 1:
        raise NotMeasurable("Several samplers share this model, and only one sampler's steps are searched.")
    titles = tuple(whole.title(id) for id in kept)
    fixed = [(str(one["node"]), str(one["input"])) for one in sent["fixed"]]
    way = upstream(plain, Wire("model", origin, receivers))
    knobs = find_knobs(plain, end[0], way, fixed, titles, max(1.0, float(sent["faster"])))
    return _Task(prompt, plain, receivers, before[0], behind[0], end, knobs, own)


def _samples(workflow: Workflow, id: str, receivers: Iterable[tuple[str, str]]) -> bool:
    """Return whether a node that gives a latent is itself given the model, or a guider that is."""
    given = {node for node, _ in receivers}
    return id in given or workflow.before(id, "guider") in given


def _read(shown: Mapping[str, Any]) -> DrawnPicture:
    share = math.inf if shown["share"] is None else float(shown["share"])
    return DrawnPicture(str(shown["key"]), int(shown["seed"]), float(shown["gain"]), share)


def _trade(knobs: Knobs, trade: Trade, shown: Sequence[Mapping[str, Any]]) -> Payload:
    """Return ``Trade`` in web/js/payloads.d.ts."""
    of = [one for one in shown if one["key"] == trade.candidate.key]
    times = [one["seconds"]["baseline"] / one["seconds"]["optimized"] for one in of if one["seconds"]["optimized"]]
    farthest = max(of, key=lambda one: one["share"])
    steps = knobs.steps(trade.candidate)
    return {
        "label": knobs.label(trade.candidate),
        "gain": trade.gain,
        "time": median(times) if times else None,
        "worst": trade.worst,
        "pictures": len(of),
        "picture": farthest["picture"],
        "edits": knobs.edits(trade.candidate),
        "steps": shown_steps(steps),
        "with_nodes": trade.candidate.with_nodes,
        "ours": trade.candidate.with_nodes or any(step.node.startswith("Paceline") for step in steps),
    }


def _prompt(task: _Task, one: Candidate, seed: int, limit: float) -> Nodes:
    """Return a prompt that draws a candidate's picture, and the plain ones beside it."""
    nodes: Nodes = {}
    plain = [_drawing(task, nodes, None, number, f"plain {number}") for number in range(PICTURES)]
    again, _ = _drawing(task, nodes, None, 0, "plain 0 again")
    tried, model = _drawing(task, nodes, one, seed, f"{one.key} {seed}")
    given = {f"plain_{number}": list(link) for number, (link, _) in enumerate(plain)}
    models = {"plain_model": [plain[seed][1], 0], "tried_model": [model, 0]}
    about = {"key": one.key, "seed": seed, "limit": limit}
    vae = {name: link for name, link in decoder(task.plain, task.end[0]).items() if name == "vae"}
    nodes[_NODE] = {
        "class_type": "_PacelineTried",
        "inputs": {**about, **given, **models, **vae, "again": list(again), "tried": list(tried)},
    }
    known = Workflow({**task.prompt, **nodes})
    return {id: dict(known[id]) for id in known.needed(_NODE)}


def _drawing(task: _Task, nodes: Nodes, one: Candidate | None, seed: int, run: str) -> tuple[Link, str]:
    """Add the nodes that draw one picture; return where its latent comes from, and the node that counts its work."""
    source = task.before
    if one is not None:
        source = task.behind if one.with_nodes else task.before
    own: Nodes = {}
    for number, step in enumerate(() if one is None else task.knobs.steps(one)):
        id = f"{_NODE} {run} step {number}"
        own[id] = {"class_type": step.node, "inputs": {**default_values(step.node), **step.inputs, "model": source}}
        source = [id, 0]
    counter = f"{_NODE} {run} counted"
    own[counter] = {"class_type": "_PacelineCounted", "inputs": {"model": source, "run": run}}
    edits = {} if one is None else {(edit["node"], edit["input"]): edit["after"] for edit in task.knobs.edits(one)}
    base = task.plain.edited(edits | dict.fromkeys(task.receivers, [counter, 0]))
    needed = base.needed(task.end[0])
    seeded = [id for id in needed if draws(base, id)] if seed else []
    seeds = [(id, put) for id in seeded for put in SEEDS if put in base.inputs(id)]
    base = base.edited({(id, put): _later(base.inputs(id)[put], seed) for id, put in seeds})
    changed = {id for id, _ in (*edits, *task.receivers)}
    by_model, by_seed = ({*ids, *base.users(ids)} for ids in (changed, seeded))
    names = {id: f"{_NODE} {run} {id}" for id in by_model & needed.keys()}
    names |= {id: f"{_NODE} seed {seed} {id}" for id in (by_seed - by_model) & needed.keys()}
    nodes |= base.copy(names) | own
    return (names[task.end[0]], task.end[1]), counter


def _later(value: Any, seed: int) -> int:
    # The value of one that comes over a link is not known here.
    return later_seed(value, seed) if isinstance(value, int) else 20_010 + seed
