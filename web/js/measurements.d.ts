// What the server sends of measurements: comparisons, profiles and sweeps.

/** What is shown of a comparison's record, from `record` in service/comfyui/comparison_report.py, and its files. */
interface Comparison {
  /** One line. */
  verdict: string;
  /** What it found: `faster`, `slower`, `no_gain`, `no_effect`, `unknown`, `suspicious` or `broken`. */
  state: string;
  /** As the state of an activity; `failed` if something is wrong with the picture. */
  badge: string;
  /** What became of the picture: `identical`, `not visible`, `hardly visible`, `visible`, `another picture` or `no picture`. */
  quality: string;
  /** Median over the rounds. */
  speedup: number;
  /** Lower end of its 95 % interval; null where there is none that says anything. */
  speedup_low: number | null;
  /** Upper end. */
  speedup_high: number | null;
  /** What the seconds are of: `step` or `sampling`. */
  speedup_of: string;
  /** Whether more rounds would tell nothing of the speed-up. */
  clear: boolean;
  /** Of each round, by side. */
  seconds: Record<string, number[]>;
  /** The baseline in the optimized side's time, without some late noise levels; null if it was not drawn. */
  late_levels: Control | null;
  /** The same with fewer steps. */
  fewer_steps: Control | null;
  /** Of the optimized side to the baseline. */
  difference: Distance;
  /** By name: of the baseline to itself. */
  noise_floor: Record<string, Distance>;
  /** What stands below the verdict. */
  lines: string[];
  /** Numbers of the pictures that are shown, from 1: of many, or of a long video, not all are. */
  shown: number[];
  /** How much the difference of each of them to the baseline is amplified, by side; 0 where there is none. */
  gains: Record<string, number[]>;
  /** How many pictures there are in all, of all seeds and batches. */
  count: number;
  /** Differences of all pictures, as shares of a seed change; null where that changes nothing. */
  seed_shares: (number | null)[];
  /** The worst picture. */
  farthest: { picture: number };
  files: ComparisonFiles;
}

/** What was saved of a comparison. */
interface ComparisonFiles {
  /** By side and control, the worst first, or frames in their order. */
  pictures: Record<string, SavedImage[]>;
  /** All frames of both sides beside each other, in motion. */
  motion?: SavedImage;
  /** What can be heard, by side. */
  sounds?: Record<string, SavedImage>;
}

/** A control of a comparison. */
interface Control {
  /** As many are taken, or levels evaluated, as fit into the time of the optimized side. */
  steps: number;
  /** Of the compared runs. */
  full_steps: number;
  /** Of its whole sampling. */
  seconds: number;
  /** To the baseline. */
  difference: Distance;
  /** How many times the difference of the optimized side; null if that has none. */
  ratio: number | null;
  /** Whether it does as well as the optimized side. */
  as_good: boolean;
}

/** How far pictures are apart; null where a number does not exist. */
interface Distance {
  rmse: number;
  psnr: number | null;
  ssim: number | null;
}

/** From `shown_profile` in nodes/compare_models.py. All times in seconds. */
interface Profile {
  /** Before the first step: loading, compiling, first allocations. */
  loading: number;
  /** Each step. */
  steps: number[];
  /** The VAE; null without one. */
  decoding: number | null;
  /** Of the median step, by what is done in them. */
  slices: Record<string, number>;
  /** Sentences about weights that were moved, why, and what helps. */
  weights: string[];
  /** What it was measured on, by name. */
  about: Record<string, string>;
}

/** Websocket event `paceline.sweep`, from service/sweep/run_sweep.py. */
interface SweepPayload {
  /** Execution id. */
  node: string;
  prompt_id: string;
  sweep: Sweep;
}

/** What is known of a sweep, from `sweep_payload` in service/sweep/run_sweep.py. */
interface Sweep {
  /** The command that shows plots of its study. */
  dashboard: string;
  /** Cells in all. */
  total: number;
  /** Name of the preset that was saved; null if none was. */
  preset: string | null;
  /** Those that are measured. */
  cells: SweepCell[];
}

/** One setting that was tried. */
interface SweepCell {
  label: string;
  /** `measured`, `out of memory`, `not possible` or `broken`. */
  state: string;
  speedup: number | null;
  /** Ends of the speed-up's 95 % interval; null without one, and 0 where it says nothing. */
  low: number | null;
  high: number | null;
  /** As a share of a seed change. */
  difference: number | null;
  text: string;
}

/** As ComfyUI's route `/view` takes it. */
type SavedImage = Record<"filename" | "subfolder" | "type", string>;
