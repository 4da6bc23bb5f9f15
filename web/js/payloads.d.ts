// What the server sends. A test holds these keys against those that Python sends and against those that we read.

/**
 * A text as data, from `data` in core/phrases.py: a number, a text, or a template with its values. A text that stands
 * alone is looked up; as a value it stays what it is. `starts`: whether it begins a sentence. `clause`: whether it stands
 * without the full stop at its end.
 */
export type Phrase = string | number | { template: string; values: Record<string, Phrase>; starts: boolean; clause?: boolean };

/** What a node says, as data. */
export interface Phrases {
  headline: Phrase;
  details: Phrase[];
}

/** What a comparison says, as data. */
export interface ComparisonPhrases {
  verdict: Phrase;
  lines: Phrase[];
}

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
  /** `headline` and `details` for other languages than English. */
  phrases: Phrases;
}

/** Websocket event `paceline.compile`, from `NodeObserver.progress` in optimizers/hosts/comfyui/compilation/comfy_env.py. */
export interface CompilePayload {
  /** Execution id. */
  node: string;
  prompt_id: string;
  phase: string;
  headline: string;
  /** `headline` and `phase` for other languages than English. */
  phrases: Phrases;
  /** Since the compilation began. */
  seconds: number;
  /** Which graph is being compiled, from 1. */
  graph: number;
  /** How long all of it took the last time; null if that is not known. */
  expected_seconds: number | null;
}

/** Answer of the route `/paceline/run`, from `run_payload` in nodes/run_routes.py: a run that the page has not seen. */
export interface RunPayload {
  prompt_id: string;
  /** As it was saved when it was queued; empty if no page made it. */
  workflow: import("./saved.js").SavedWorkflow;
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

/** Answer of the route `/paceline/advice` to a prompt, from `advice_payload` in nodes/advice.py. */
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

/** Of the route `/paceline/conversions`, by a node's type, from `conversions_payload` in nodes/foreign.py. */
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

/** Answer of the route `/paceline/trial`, from `trial_payload` in nodes/trial.py. */
export interface TrialState {
  /** Whether Compare Models can stand in for what uses the wire. */
  measurable: boolean;
  /** What to run next; null when all is known. */
  prompt: import("./prompt.js").Prompt | null;
  /** Execution id of what that measures; empty for all of it together. */
  node: string;
  judged: Judged[];
  /** Of all that was kept; null if nothing was, or it is not known yet. */
  best: import("./trial.js").Finding | null;
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
  /** `verdict` for other languages than English. */
  phrase: Phrase;
  /** Seconds that compiling took. */
  once: number;
  /** Seconds that it saves of each picture. */
  saves: number;
}

/** What our nodes hand over beside their outputs: `ui` of the node's result, `output` of ComfyUI's `executed`. */
export interface NodeOutput {
  paceline_comparison?: Comparison[];
  paceline_report?: string[];
  /** The same for other languages than English. */
  paceline_report_phrase?: Phrase[];
  paceline_sweep?: Sweep[];
  paceline_profile?: Profile[];
  paceline_steps?: Step[];
}

/** From `shown_comparison` in nodes/compare_models.py. */
export interface Comparison {
  /** One line. */
  verdict: string;
  /** What the verdict found: `faster`, `slower`, `no_gain`, `no_effect`, `unknown`, `suspicious` or `broken`. */
  found: string;
  /** As of an activity; `failed` if something is wrong with the picture. */
  state: string;
  /** What became of the picture: `identical`, `hardly visible`, `visible`, `another picture` or `no picture`. */
  quality: string;
  /** Seconds that went into compiling. */
  compiling: number;
  /** Median over the rounds. */
  speedup: number;
  /** Lower end of its 95 % interval; null where there is none that says anything. */
  speedup_low: number | null;
  /** Upper end. */
  speedup_high: number | null;
  /** The difference as a share of what another seed changes; null if that changes nothing. */
  seed_share: number | null;
  /** What the seconds are of: `step`, `sampling`, `decode` or `picture`. */
  speedup_of: string;
  /** Of each round, by side. */
  seconds: Record<string, number[]>;
  /** The baseline with fewer steps, in the optimized side's time; null if it was not drawn. */
  fewer_steps: FewerSteps | null;
  /** To the baseline, by name: of the optimized side first, then what it is held against. */
  distances: Record<string, Distance>;
  /** What stands below the verdict. */
  lines: string[];
  /** `verdict` and `lines` for other languages than English; comparisons of earlier versions have none. */
  phrases?: ComparisonPhrases;
  /** By side; those of a batch in their order. `fewer_steps` is there if it was drawn. */
  pictures: Record<string, SavedImage[]>;
  /** A picture of all of it, which holds the workflow. */
  sheet: SavedImage;
  /** What it was measured on and with, by name. */
  about: Record<string, string>;
}

/** The control of a comparison. */
export interface FewerSteps {
  /** As many as fit into the time of the optimized side. */
  steps: number;
  /** Of the compared runs. */
  full_steps: number;
  /** Of its whole sampling. */
  seconds: number;
  /** How many times the difference of the optimized side, by LPIPS where it was measured; null if that has none. */
  ratio: number | null;
  /** Whether it does as well as the optimized side. */
  as_good: boolean;
}

/** How far pictures are apart; null where a number does not exist. */
export interface Distance {
  rmse: number;
  psnr: number | null;
  ssim: number | null;
  lpips: number | null;
}

/** From `shown_profile` in nodes/profile.py. All times in seconds. */
export interface Profile {
  /** Before the first step: loading, compiling, first allocations. */
  loading: number;
  /** Each step. */
  steps: number[];
  /** The VAE; null without one. */
  decoding: number | null;
  /** The median step, which `slices` are parts of. */
  step: number;
  /** By what is done in them. */
  slices: Record<string, number>;
  remedies: Remedy[];
  /** What it was measured on, by name. */
  about: Record<string, string>;
}

/** A node that makes a part of a step shorter. */
export interface Remedy {
  /** One of the slices. */
  part: string;
  /** Of the node. */
  title: string;
  /** Share of the whole step that it saves at most. */
  at_most: number;
  steps: Step[];
}

/** Websocket event `paceline.sweep`, from `SweepView` in nodes/sweep_view.py. */
export interface SweepPayload {
  /** Execution id. */
  node: string;
  prompt_id: string;
  sweep: Sweep;
}

/** What is known of a sweep, from `SweepView.payload`. */
export interface Sweep {
  study: string;
  /** Cells in all. */
  total: number;
  /** The largest difference of a preset, as a share of a seed change. */
  limit: number;
  /** Of both sides together, on average; null before the first cell. */
  seconds_per_step: number | null;
  running: boolean;
  /** Name of the preset that was saved; null if none was. */
  preset: string | null;
  /** Those that are measured. */
  cells: SweepCell[];
}

/** One setting that was tried. */
export interface SweepCell {
  label: string;
  /** `measured`, `out of memory`, `not possible` or `broken`. */
  state: string;
  speedup: number | null;
  /** Ends of the speed-up's 95 % interval; null where there is none that says anything. */
  low: number | null;
  high: number | null;
  /** As a share of a seed change. */
  difference: number | null;
  /** That of the plain model with as many steps as fit into the same time; null if it was not drawn. */
  control: number | null;
  /** Whether it is one of the best trades: surely faster, and no other cell beats it. */
  best: boolean;
  text: string;
  /** `text` for other languages than English. */
  phrase: Phrase;
  /** Kept for as long as the server runs. */
  picture: SavedImage | null;
  steps: Step[];
}

/** As ComfyUI's route `/view` takes it. */
export type SavedImage = Record<"filename" | "subfolder" | "type", string>;

/** A node that Optimize (Preset) has applied, and what it has set. */
export interface Step {
  node: string;
  inputs: Record<string, unknown>;
}

/** Answer of the route `/paceline/cache`, from `cache_payload` in nodes/routes.py. */
export interface Cache {
  bytes: number;
  /** Folder on the server; null if nothing is kept. */
  path: string | null;
}

/** The same route's answer where the cache cannot be cleared. */
export interface CacheError {
  error: string;
}
