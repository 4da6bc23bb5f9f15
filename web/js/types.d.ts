// The types that several modules speak of, under one name each.

type ComfyExtension = import("@comfyorg/comfyui-frontend-types").ComfyExtension;
type Command = NonNullable<ComfyExtension["commands"]>[number];
type MenuItems = ComfyExtension["getNodeMenuItems"] extends ((node: any) => infer Items) | undefined ? Items : never;
type LGraph = import("@comfyorg/comfyui-frontend-types").ComfyApp["rootGraph"];
type LGraphNode = LGraph["nodes"][number];

type ActivityStore = import("./badges/activity_store.js").ActivityStore;
type Timeline = import("./speed/timeline.js").Timeline;

/** What a node did or does; without a phrase where the message is of an error. */
interface Activity extends Omit<ActivityPayload, "node" | "prompt_id" | "phrase" | "neutral">, Partial<Pick<ActivityPayload, "phrase" | "neutral">> {
  /** Keys of words that stand before the headline. */
  before?: string[];
}

/** What is known of a node of ours, or of a sampler. */
interface Entry {
  /** Execution id. */
  node: string;
  /** The last one. */
  activity?: Activity;
  /** Whether that is what the server knows without a run. */
  foretold?: boolean;
  /** What it was set to in that run. */
  then?: string;
  /** Whether the node's settings, wires or mode are others than in that run. */
  stale?: boolean;
  /** What it is set to, if it is stale. */
  now?: string;
  /** How fast the sampler is: what stands in it, and all that is known. */
  chip?: { text: string; lines: string[] };
  /** What Compare Models last handed over. */
  comparison?: Comparison[];
  /** What Benchmark Sweep has measured. */
  sweep?: Sweep;
  /** Where the time went, from Profile. */
  profile?: Profile;
  /** What Optimization Report last said. */
  report?: string;
}

/** The open workflow in the form in which ComfyUI runs it: nodes by execution id. */
type Prompt = Record<string, { class_type: string; inputs: Record<string, unknown> }>;

interface SavedNode {
  id: number | string;
  /** The id of a subgraph, for a node that stands for one. */
  type: string;
  mode?: number;
  inputs?: { name: string; link?: number | null }[];
  widgets_values?: unknown;
}

interface SavedGraph {
  nodes: SavedNode[];
  /** Lists [id, origin, slot, ...] outside of subgraphs, objects inside. */
  links?: unknown[];
}

/** A workflow as it is saved. */
interface SavedWorkflow extends SavedGraph {
  id?: string;
  definitions?: { subgraphs?: (SavedGraph & { id: string })[] };
}

/** One part of a run, in seconds since its start. */
interface Part {
  kind: string;
  /** Execution id. */
  node: string;
  start: number;
  end: number;
  /** Where each step ended. */
  steps: number[];
  /** Steps that had ended before this page heard of it. */
  before?: number;
  /** Steps. */
  total: number;
  /** What the chip of a sampler says of it. */
  chip?: string;
  /** When compiling for this sampler pays. */
  wonBack?: string;
  /** Why weights were loaded again. */
  again?: string;
  /** What was expected of its run, and what that was. */
  expected?: string;
}

interface TimedRun {
  promptId: string;
  workflow: string;
  /** As its tab was called. */
  name: string;
  /** Whether one of our nodes was in it, also one that was bypassed. */
  ours: boolean;
  when: number;
  parts: Part[];
  over: boolean;
  /** What was expected of it, and what it was; empty where nothing was. */
  expected?: string;
  /** Since when it takes longer, and where. */
  slower?: Told;
}

/** An input of a node that takes what an output gives; of the subgraph's own outputs, where `node` is null. */
interface Receiver {
  node: LGraphNode | null;
  input: number;
}

/** One source, and everything that it is to go faster for. */
interface Wire {
  /** Of the inputs of our nodes: `model`, `vae` or `control_net`. */
  name: string;
  graph: LGraph;
  /** Of the execution ids in that graph. */
  prefix: string;
  /** Id of the node it comes from; that of the graph's own input, in a subgraph. */
  origin: number | string;
  /** Of the origin. */
  slot: number;
  receivers: { node: LGraphNode; input: number }[];
}

/** Addresses of two pictures, their names, and how much their difference is amplified. */
interface Pair {
  left: string;
  right: string;
  labels: [string, string];
  gain: number;
}

type Mode = "slider" | "side" | "blink" | "heat";
