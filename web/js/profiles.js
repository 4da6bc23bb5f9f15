// What Profile shows: the run, one step of it, and what helps.

import { addSteps } from "./add_steps.js";
import { createButton, createElement } from "./elements.js";
import { createBar } from "./speed_bars.js";
import { words, wordsOf } from "./words.js";

/**
 * @param {Profile} profile
 * @param {LGraphNode} node that has measured it
 */
export function profileParts({ loading, steps, decoding, step, slices, weights, remedies, about }, node) {
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
  const list = createElement("ul", { className: "paceline-remedies" });
  for (const sentence of weights) list.append(createElement("li", {}, sentence));
  for (const { part, title, at_most, steps: made } of remedies) {
    const share = Math.round((100 * slices[part]) / step);
    const text = `${wordsOf(part)} ${share} %: ${title}, ${words("atMost")} ${Math.round(100 * at_most)} %`;
    const insert = createButton(words("insert"), () => addSteps(node, made));
    list.append(createElement("li", {}, createElement("span", {}, text), insert));
  }
  const { model, device, torch, comfyui } = about;
  const small = createElement("small", {}, `${model} · ${device} · torch ${torch} · ComfyUI ${comfyui}`);
  return [createBar(words("wholeRun"), pieces), createBar(words("step"), parts), list, small];
}
