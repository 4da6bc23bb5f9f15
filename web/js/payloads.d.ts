// What the server sends, but for what it sends of measurements: that is in measurements.d.ts.

/** A headline as data, from `data` in core/phrases.py: a number, a text that stays as it is, or a template with its values. */
type Phrase = string | number | { template: string; values: Record<string, Phrase> };

/** Websocket events `paceline.activity`, from `announce` in optimizers/in_comfyui/run/reporting.py, and `paceline.compile`. */
interface ActivityPayload {
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
  /** Whether only a comparison tells if what is active makes anything faster. */
  neutral: boolean;
  /** Whether something is compiled just now; left out where nothing is. */
  busy?: boolean;
}

/** Answer of the route `/paceline/before`, from `before_payload` in service/before_run.py: what is known without a run. */
interface BeforeRun {
  /** By execution id. */
  nodes: Record<string, Omit<ActivityPayload, "node" | "prompt_id">>;
}

/** Websocket event `paceline.loading`, from `prepare_sampling` in optimizers/in_comfyui/second_weights/moves.py: weights were loaded. */
interface LoadingPayload {
  /** Execution id of a node of ours on that model. */
  node: string;
  prompt_id: string;
  seconds: number;
  /** Why it was done again, and what helps; empty if it was not. */
  why: string;
}

/** Answer of the route `/paceline/run`, from `run_payload` in service/outcomes.py: of which workflow a prompt is. */
interface RunPayload {
  /** As it was saved when it was queued; empty if no page made it. */
  workflow: SavedWorkflow;
  running: boolean;
}

/** Answer of the route `/paceline/faster`, from `faster_payload` in service/faster/job_store.py. */
interface FasterState {
  /** `look`, `run`, `probe`, `answer`, `proof`, `proved` or `keep`. */
  phase: string;
  /** Which job it is about; empty before a run has begun. */
  job: string;
  /** What to run next; null where nothing is. */
  prompt: Prompt | null;
  /** Why nothing can be said or done; empty where something can. */
  why_not: Told;
  /** What the workflow has of its own. */
  levers: Lever[];
  /** What is known, in sentences. */
  lines: Told[];
  /** What could be inserted; null where nothing is worth it. */
  offer: Offer | null;
  /** Where the time of the last picture went; null where that is not known. */
  time: PictureTime | null;
}

/** What can be changed in a workflow to make it faster, from `Lever` in service/faster/levers.py. */
interface Lever {
  said: Told;
  /** By execution id; a node without an input is switched on. Empty where a person has to do it. */
  sets: { node: string; input: string; value: string | number | boolean }[];
}

/** The last run of a workflow, from `PictureTime` in service/faster/look.py. */
interface PictureTime {
  sentence: Told;
  /** The largest first: of a kind (see `KINDS` in timeline.js), and of a node with this title; empty for no single one. */
  parts: { kind: string; name: string; seconds: number; remedy: Told }[];
}

/** A sentence of the server, from `told` in service/faster/sentences.py. */
interface Told {
  text: string;
  /** `text` for other languages than English. */
  phrase: Phrase;
}

/** Nodes that could be inserted. */
interface Offer {
  /** In a few words. */
  label: string;
  /** How much faster the whole run gets. */
  expected: Told;
  /** How much faster its steps and its VAE get, and how far the picture moves. */
  about: Told;
  /** How many times faster its steps get: at least, likely and at most. */
  sampling_speedup: number[];
  /** How long a proof takes, from and to; empty where the steps stay as they are: only they are proved. */
  proof_seconds: number[];
  /** How many pictures a proof draws at least, by what it has drawn. */
  proof_pictures: number;
  /** What a proof has measured. */
  measured?: Told | null;
  /** Whether a picture of the proof is farther from the plain one than the choice allows. */
  beyond?: boolean;
  /** The farthest pair of a proof. */
  picture?: SavedImage | null;
  inserts: Insert[];
}

/** Nodes on the link of a model or a VAE. */
interface Insert {
  /** What the nodes call the input that they take it by. */
  name: string;
  /** Execution id and input of what is to go faster. */
  receivers: { node: string; input: string }[];
  /** In order. */
  steps: Step[];
}

/** What our nodes hand over beside their outputs: `ui` of the node's result, `output` of ComfyUI's `executed`. */
interface NodeOutput {
  paceline_comparison?: Comparison[];
  paceline_report?: string[];
  paceline_sweep?: Sweep[];
  paceline_profile?: Profile[];
  paceline_steps?: Step[];
}

/** A node that Optimize (Preset) has applied, and what it has set. */
interface Step {
  node: string;
  inputs: Record<string, unknown>;
}

/** Answer of the route `/paceline/cache`, from `cache_payload` in service/routes.py. */
interface CodeCache {
  bytes: number;
  /** Folder on the server; null if nothing is kept. */
  path: string | null;
}

/** What ordinary runs took, the oldest first: service/outcomes.py. */
interface KeptRuns {
  runs: object[];
}

/** Answer of the route `/paceline/samplings`, from service/outcomes.py: the samplers of a run by execution id. */
type Samplings = Record<string, Sampling>;

interface Sampling {
  /** How many of our nodes its steps run through. */
  techniques: number;
  /** A step without any, by the runs that are kept. */
  off: StepTime | null;
}

interface StepTime {
  seconds: number;
  /** Logarithms within which one more run would be; null where one run cannot tell. */
  within: number | null;
}
