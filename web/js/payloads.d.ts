// What the server sends. A test holds these keys against those that Python sends and against those that we read.
// What it sends of measurements is in measurements.d.ts.

import type { Comparison, Profile, Sweep } from "./measurements";

export * from "./measurements";

/** A headline as data, from `data` in core/phrases.py: a number, a text that stays as it is, or a template with its values. */
export type Phrase = string | number | { template: string; values: Record<string, Phrase> };

/** Websocket event `paceline.activity`, from `announce` in optimizers/hosts/comfyui/reporting.py. */
export interface ActivityPayload {
  /** Execution id. */
  node: string;
  prompt_id: string;
  /** `active`, `partly`, `inactive`, `waiting`, `working` or `failed`. */
  state: string;
  /** Whose activity it is. */
  title: string;
  /** The result in a few words. */
  headline: string;
  /** The numbers behind it, by name. */
  counts: Record<string, number>;
  details: string[];
  /** `headline` for other languages than English. */
  phrase: Phrase;
}

/** Websocket event `paceline.loading`, from `RunLoads` in optimizers/hosts/comfyui/weights.py: weights were loaded. */
export interface LoadingPayload {
  /** Execution id of a node of ours on that model. */
  node: string;
  prompt_id: string;
  seconds: number;
  /** Why it was done again, and what helps; empty if it was not. */
  why: string;
}

/** Websocket event `paceline.compile`, from `NodeObserver.progress` in optimizers/hosts/comfyui/compilation/comfy_env.py. */
export interface CompilePayload {
  /** Execution id. */
  node: string;
  prompt_id: string;
  phase: string;
  headline: string;
  /** `headline` for other languages than English. */
  phrase: Phrase;
  /** Since the compilation began. */
  seconds: number;
  /** Which graph is being compiled, from 1. */
  graph: number;
  /** How long all of it took the last time; null if that is not known. */
  expected_seconds: number | null;
}

/** Answer of the route `/paceline/run`, from `run_payload` in server/run_routes.py: a run that the page has not seen. */
export interface RunPayload {
  prompt_id: string;
  /** As it was saved when it was queued; empty if no page made it. */
  workflow: SavedWorkflow;
  /** `running`, `success`, `failed` or `cancelled`. */
  outcome: string;
  /** What each node said last. */
  activities: ActivityPayload[];
  /** What nodes have handed over. */
  outputs: { node: string; output: NodeOutput }[];
  /** Execution id of the node that has failed; null if none has. */
  failed_node: string | null;
  /** Its type. */
  failed_type: string | null;
  /** Of its error. */
  message: string | null;
}

/** Answer of the route `/paceline/advice` to a prompt, from `advice_payload` in server/advice.py. */
export interface Advice {
  /** `lossless`, `balanced` and `fast`. */
  choices: string[];
  wires: AdvisedWire[];
}

/** A wire on which something can be made faster. */
export interface AdvisedWire {
  /** Of the inputs of our nodes: `model`, `vae` or `control_net`. */
  name: string;
  /** Execution id and input of what is to go faster. */
  receivers: { node: string; input: string }[];
  /** By choice. */
  plans: Record<string, AdvisedPlan>;
  /** What is not inserted, and why. */
  notes: string[];
}

/** What to do on a wire. */
export interface AdvisedPlan {
  foreign: Foreign[];
  /** What would be inserted, in order. */
  steps: Step[];
}

/** A node of others that becomes one of ours. */
export interface Foreign {
  /** Execution id. */
  node: string;
  /** Type of ours. */
  to: string;
  /** What ours is set to. */
  inputs: Record<string, unknown>;
}

/** Of the route `/paceline/conversions`, by a node's type, from `conversions_payload` in server/foreign.py. */
export interface Conversion {
  /** Type of ours. */
  to: string;
  /** What the old node changes, by its name there. */
  input: string;
  /** The same at ours; it is also our first output. */
  our_input: string;
  /** Of the old node, in the order of its saved values. */
  widgets: string[];
}

/** Answer of the route `/paceline/trial`, from `trial_payload` in server/trial.py. */
export interface TrialState {
  /** Why what uses the wire cannot be measured; empty where it can. */
  why_not: string;
  /** What to run next; null when all is known. */
  prompt: Prompt | null;
  /** Execution id of what that measures; empty for all of it together. */
  node: string;
  judged: Judged[];
  /** Of all that was kept; null if nothing was, or it is not known yet. */
  best: Finding | null;
  /** Seconds that compiling it took. */
  once: number;
  /** Seconds that it saves of each picture. */
  saves: number;
}

/** What a trial has found of a node. */
export interface Judged {
  /** Execution id. */
  node: string;
  /** Whether it is certainly faster, with a picture as good as was chosen. */
  kept: boolean;
  /** In one line. */
  verdict: string;
  /** Seconds that compiling took. */
  once: number;
  /** Seconds that it saves of each picture. */
  saves: number;
}

/** Answer of the route `/paceline/search`, from `search_payload` in server/search.py. */
export interface SearchState {
  /** Why nothing can be searched; empty where it can. */
  why_not: string;
  /** What draws the next picture; null when all is known. */
  prompt: Prompt | null;
  /** What that tries, in a few words. */
  label: string;
  /** Plain pictures whose work is done. */
  pictures: number;
  /** How many it may be. */
  most: number;
  /** How many it may be for a first answer, before nodes are timed. */
  first: number;
  /** Of the workflow's own sampler. */
  steps: number;
  /** What else is to be known; may be empty. */
  note: string;
  /** Execution ids of inserted nodes that the search tries itself. */
  own: string[];
  /** Widgets that may be changed. */
  sites: { node: string; input: string }[];
  /** The best, from the most careful to the fastest. */
  trades: Trade[];
}

/** Other settings that hold. */
export interface Trade {
  /** In a few words. */
  label: string;
  /** How many times less work. */
  gain: number;
  /** How many times as fast it was; null where that was not measured. */
  time: number | null;
  /** The farthest picture, as a share of what another seed changes. */
  worst: number;
  /** How many were drawn. */
  pictures: number;
  /** The farthest one, beside the plain one; null without a VAE. */
  picture: SavedImage | null;
  edits: Edit[];
  /** Nodes to insert, in order. */
  steps: Step[];
  /** Whether the nodes that were kept before are part of it. */
  with_nodes: boolean;
  /** Whether a node of this pack is part of it. */
  ours: boolean;
}

/** A widget of another node that changes. */
export interface Edit {
  /** Execution id. */
  node: string;
  input: string;
  before: string | number;
  after: string | number;
  /** Of the node. */
  title: string;
}

/** What our nodes hand over beside their outputs: `ui` of the node's result, `output` of ComfyUI's `executed`. */
export interface NodeOutput {
  paceline_comparison?: Comparison[];
  paceline_report?: string[];
  paceline_sweep?: Sweep[];
  paceline_profile?: Profile[];
  paceline_steps?: Step[];
  /** Goes back to the server as it is. */
  paceline_tried?: unknown[];
}

/** A node that Optimize (Preset) has applied, and what it has set. */
export interface Step {
  node: string;
  inputs: Record<string, unknown>;
}

/** Answer of the route `/paceline/cache`, from `cache_payload` in server/routes.py. */
export interface Cache {
  bytes: number;
  /** Folder on the server; null if nothing is kept. */
  path: string | null;
}

/** The answer of every route where something cannot be done. */
export interface Refusal {
  error: string;
}
