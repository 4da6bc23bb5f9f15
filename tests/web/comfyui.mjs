// Stand-ins for ComfyUI's scripts/app.js and scripts/api.js, and for the nodes of its graph.

/** A node of LiteGraph, as far as web/js asks for it. */
export class Node {
  mode = 0;
  pos = [0, 0];
  size = [200, 100];
  inputs = [];
  outputs = [];

  constructor(id, type, values = {}) {
    Object.assign(this, { id, type, graph: app.rootGraph });
    this.widgets = Object.entries(values).map(([name, value]) => ({ name, value, options: {} }));
  }

  getTitle() {
    return this.type.replace("Paceline", "");
  }

  computeSize() {
    return [200, 100];
  }

  setSize(size) {
    this.size = size;
  }

  /** Lead an output of this node to an input of another, in the place of what led there. */
  connect(slot, node, input) {
    const { links } = this.graph;
    const id = links.size + 1;
    const [from, to] = [this.outputs[slot], node.inputs[input]];
    for (const output of this.graph.nodes.flatMap(({ outputs }) => outputs)) output.links = (output.links ?? []).filter((one) => one !== to.link);
    links.set(id, { id, origin_id: this.id, origin_slot: slot, target_id: node.id, target_slot: input });
    from.links = [...(from.links ?? []), id];
    to.link = id;
  }

  getInputLink(input) {
    return this.graph.links.get(this.inputs[input].link) ?? null;
  }

  addDOMWidget(name, _type, element) {
    const widget = { name, element };
    this.widgets.push(widget);
    return widget;
  }

  /** The element that stands in the node under a name; undefined if there is none. */
  shows(name) {
    return this.widgets.find((widget) => widget.name === name)?.element;
  }
}

class Api {
  clientId = "this page";
  #listeners = new EventTarget();

  addEventListener(...listener) {
    this.#listeners.addEventListener(...listener);
  }

  /** Nobody listens any more, as after a reload of the page. */
  reload() {
    this.#listeners = new EventTarget();
  }

  /** By route: what the server answers, or a function of the request that returns it. */
  answers = {};

  apiURL(route) {
    return `/api${route}`;
  }

  async fetchApi(route, request = {}) {
    const [path] = route.split("?");
    const found = this.answers[route] ?? this.answers[path];
    if (found === undefined) return { ok: false, statusText: "Not Found", json: async () => ({}) };
    const answer = typeof found === "function" ? await found(request, route) : found;
    return { ok: true, json: async () => structuredClone(answer) };
  }

  /** A message of the server. */
  tell(type, detail) {
    this.#listeners.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

export const api = new Api();

export const app = {
  settings: { "Comfy.Locale": "en" },
  rootGraph: {
    id: "open",
    nodes: [],
    links: new Map(),
    getNodeById(id) {
      return this.nodes.find((node) => String(node.id) === String(id)) ?? null;
    },
    add(node) {
      node.id = Math.max(0, ...this.nodes.map(({ id }) => id)) + 1;
      this.nodes.push(node);
    },
    remove(node) {
      this.nodes = this.nodes.filter((one) => one !== node);
    },
    serialize() {
      const values = (widgets) => widgets.filter(({ serialize }) => serialize !== false).map(({ value }) => value);
      const saved = ({ id, type, mode, widgets }) => ({ id, type, mode, widgets_values: values(widgets) });
      return { id: this.id, nodes: this.nodes.map(saved) };
    },
  },
  canvas: { ds: { scale: 1 }, setDirty() {} },
  extensionManager: { setting: { get: (name) => app.settings[name] }, toast: { add() {} }, command: { execute() {} } },
  async refreshComboInNodes() {},
  ui: { settings: new EventTarget() },
};

/** Put nodes into the open workflow, in the place of those before: `[id, type, values]`. */
export function open(id, ...nodes) {
  app.rootGraph.id = id;
  app.rootGraph.nodes = nodes.map(([number, type, values]) => new Node(number, type, values));
  return app.rootGraph.nodes;
}

/** A node with inputs and outputs: `{model: "MODEL"}`, `["MODEL"]`. */
export function wired(node, inputs, outputs) {
  node.inputs = Object.entries(inputs).map(([name, type]) => ({ name, type, link: null }));
  node.outputs = outputs.map((type) => ({ type, links: [] }));
  return node;
}

/** Let the page speak another language. */
export function speak(language) {
  app.ui.settings.dispatchEvent(new CustomEvent("Comfy.Locale.change", { detail: { value: language } }));
}

/** Wait until something is so; what is waiting for an answer comes first. */
export async function until(condition, otherwise = () => String(condition)) {
  for (let turn = 0; turn < 100; turn++) {
    await new Promise((next) => setTimeout(next));
    if (turn > 3 && condition()) return;
  }
  throw new Error(otherwise());
}

/** Let something happen to an element of the page. */
export function happens(element, type) {
  element.dispatchEvent(new window.Event(type));
}
