// What Profile shows: the run, one step of it, and what became of the weights.

import { createElement } from "./elements.js";
import { createBar } from "./speed_bars.js";
import { words } from "./words.js";

/** @param {Profile} profile */
export function profileParts({ loading, steps, decoding, slices, weights, about }) {
  const sampling = steps.reduce((sum, seconds) => sum + seconds, 0);
  let at = 0;
  const marks = steps.slice(0, -1).map((seconds) => (at += seconds) / sampling);
  const pieces = [
    { kind: "loading", seconds: loading },
    { kind: "samplingRun", seconds: sampling, marks },
    ...(decoding === null ? [] : [{ kind: "decoding", seconds: decoding }]),
  ];
  const parts = Object.entries(slices).map(([kind, seconds]) => ({ kind, seconds }));
  parts.sort((a, b) => b.seconds - a.seconds);
  const list = createElement("ul", { className: "paceline-weights" }, ...weights.map((line) => createElement("li", {}, line)));
  const { model, device, torch, comfyui } = about;
  const small = createElement("small", {}, `${model} · ${device} · torch ${torch} · ComfyUI ${comfyui}`);
  return [createBar(words("wholeRun"), pieces), createBar(words("step"), parts), list, small];
}
