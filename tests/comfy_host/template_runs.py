"""Draw ComfyUI's templates plain, with what *Make this workflow faster* can insert, and plain again."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from . import templates
from .client import ComfyClient, Prompt, Result
from .server import ComfyServer
from .workflow import Json, WorkflowError, to_api, with_defaults

_WATCH = "watch "


@dataclass(frozen=True)
class Report:
    """What a node of ours said last in a run."""

    node: str
    state: str
    headline: str
    counts: Mapping[str, float]
    details: tuple[str, ...]


class Host:
    """A server with this pack, and with loaders that know files of no content."""

    def __init__(self, server: ComfyServer, client: ComfyClient) -> None:
        self.server, self.client = server, client
        self.object_info = client.object_info()
        templates.write_inputs(server.input_dir)

    def prompt_of(self, template: templates.Template) -> Prompt:
        """Return a small prompt for a template, and write the files that it names."""
        return self.small_prompt(template.workflow())

    def small_prompt(self, workflow: Json) -> Prompt:
        """Return a small prompt for a saved workflow, and write the files that it names."""
        for folder, name in templates.files_of(workflow):
            templates.write_file(self.server.base_directory / "models" / folder / name)
        return templates.small(to_api(workflow, self.object_info), self.object_info)

    def why_not(self, template: templates.Template) -> str:
        """Return what is missing to draw a template, in a clause; nothing if it can be drawn."""
        try:
            to_api(template.workflow(), self.object_info)
        except WorkflowError as error:
            unknown = re.search(r"type '(\w+)', which this ComfyUI does not know", str(error))
            return f"this ComfyUI has no {unknown[1]}" if unknown else str(error)
        files = templates.without_network(template)
        return f"no small network stands for {', '.join(files)}" if files else ""

    def draw(self, prompt: Prompt, number: int = 0) -> Result:
        """Run a prompt so that `latents` can be compared; with another ``number`` its samplers run again."""
        return self.client.run(self._watched(prompt, number))

    def faster(self, prompt: Prompt) -> Prompt:
        """Return a prompt with all of *Make this workflow faster* that compiles nothing, whether it pays or not.

        Each is set as strong as it can be: what random networks would lose decides nothing.
        """
        made = self.with_node(prompt, "PacelineApplyToMe", method="kv_downsample", ratio=0.9375, residual="off")
        made = self.with_node(made, "PacelineSetAttentionProcessor")
        looked = self.client.post("/paceline/faster", {"do": "look", "prompt": prompt, "choice": "fast"})
        few = any("Reuse Steps is left out" in line["text"] for line in looked["lines"])
        return made if few else self.with_node(made, "PacelineReuseSteps", only="model", budget=1.0)

    def with_node(self, prompt: Prompt, type: str, only: str = "", **values: Any) -> Prompt:
        """Return a prompt with a node of a type before each sampler, or before one input of each.

        It has its defaults beside ``values``.
        """
        made = dict(prompt)
        for id, name in self.samplers(prompt):
            if only not in ("", name):
                continue
            inputs = prompt[id]["inputs"]
            made[f"{type} {id} {name}"] = with_defaults(self.object_info, type, model=inputs[name], **values)
            made[id] = {**prompt[id], "inputs": {**inputs, name: [f"{type} {id} {name}", 0]}}
        return made

    def samplers(self, prompt: Prompt) -> Iterator[tuple[str, str]]:
        """Yield node and input where a model is sampled with."""
        for id, node in prompt.items():
            if {"LATENT", "GUIDER"} & {*self._outputs(node)} and "MODEL" not in self._outputs(node):
                yield from ((id, name) for name in node["inputs"] if self._type(node, name) == "MODEL")

    def _outputs(self, node: Mapping[str, Any]) -> list[str]:
        return self.object_info[node["class_type"]]["output"]

    def _type(self, node: Mapping[str, Any], name: str) -> str:
        groups = self.object_info[node["class_type"]]["input"]
        return next((str(group[name][0]) for group in groups.values() if name in group), "")

    def _watched(self, prompt: Prompt, number: int) -> Prompt:
        made = {id: {**node, "inputs": dict(node["inputs"])} for id, node in prompt.items()}
        for id, name in self.samplers(prompt):
            inputs = made[id]["inputs"]
            made[f"again {id} {name}"] = _node("OnceMore", model=inputs[name], number=number)
            inputs[name] = [f"again {id} {name}", 0]
        for id, node in prompt.items():
            if "LATENT" in self._outputs(node) and any(
                self._type(node, name) in ("MODEL", "GUIDER") for name in node["inputs"]
            ):
                made[_WATCH + id] = _node("LatentDigest", samples=[id, self._outputs(node).index("LATENT")])
        return made


@contextmanager
def host() -> Iterator[Host]:
    """Start such a server."""
    with ComfyServer(custom_nodes=[templates.RANDOM_FILES], cpu=True) as server, server.client() as client:
        yield Host(server, client)


def latents(result: Result) -> dict[str, list[str]]:
    """Return a digest of each stream of the latent that each sampler gave."""
    return {node: texts for node, texts in result.texts.items() if node.startswith(_WATCH)}


def chain(prompt: Prompt, link: list[Any], inserted: Collection[str]) -> list[str]:
    """Return the inserted nodes from which a sampler's model comes, in order."""
    found: list[str] = []
    while link[0] in inserted:
        found.insert(0, link[0])
        link = prompt[link[0]]["inputs"]["model"]
    return found


def reports(result: Result, prompt: Prompt) -> dict[str, Report]:
    """Return what each node of ours said last, by its id."""
    said = {str(one["node"]): one for one in result.of_type("paceline.activity")}
    return {
        id: Report(prompt[id]["class_type"], one["state"], one["headline"], one["counts"], tuple(one["details"]))
        for id, one in said.items()
        if id in prompt
    }


def _node(type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": type, "inputs": inputs}
