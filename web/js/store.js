// What our nodes last reported, for every workflow that was run since the page was loaded.
//
// Node ids are only unique within a workflow, and the frontend keeps several workflows in tabs. So an activity belongs
// to a workflow's id and to an execution id: the ids of the subgraph nodes on the way and of the node, joined by ":".

/**
 * @typedef {object} Entry
 * @property {string} node execution id
 * @property {import("./activity.js").Activity} [activity] the last one
 * @property {import("./payloads").Comparison[]} [comparison] what Compare Models last handed over
 * @property {import("./payloads").Sweep} [sweep] what Benchmark Sweep has measured
 * @property {import("./payloads").Profile} [profile] where the time went, from Profile
 * @property {string} [report] what Optimization Report last said
 * @property {import("./payloads").Step[]} [steps] what Optimize (Preset) last applied
 */

/** Tells its listeners ("change" events) about every change. */
export class ActivityStore extends EventTarget {
  /** @type {Map<string, Map<string, Entry>>} */
  #workflows = new Map();
  /** @type {Map<string, Set<string>>} */
  #participants = new Map();

  /**
   * Remember what a node reported.
   * @param {string} workflow
   * @param {string} node execution id
   * @param {Omit<Entry, "node">} news
   */
  update(workflow, node, news) {
    const entries = this.#workflows.get(workflow) ?? new Map();
    this.#workflows.set(workflow, entries);
    const entry = { ...entries.get(node), ...news, node };
    // Deleted first, so that the order of the map is the order of the last reports.
    entries.delete(node);
    entries.set(node, entry);
    this.#changed();
  }

  /**
   * Remember what a node reported earlier; what is known of it already is newer.
   * @param {string} workflow
   * @param {string} node execution id
   * @param {Omit<Entry, "node">} earlier
   */
  fill(workflow, node, earlier) {
    this.update(workflow, node, { ...earlier, ...this.#workflows.get(workflow)?.get(node) });
  }

  /**
   * End a run. Nodes that did not take part in it are forgotten: what they did earlier says nothing about it.
   * @param {string} workflow
   * @param {Set<string>} participants execution ids
   */
  finish(workflow, participants) {
    this.#participants.set(workflow, participants);
    const entries = this.#workflows.get(workflow);
    for (const node of [...(entries?.keys() ?? [])]) {
      if (!participants.has(node)) entries?.delete(node);
    }
    this.#changed();
  }

  /**
   * @param {string} workflow
   * @param {string} node execution id
   * @returns {boolean} whether the node took part in the last run
   */
  tookPart(workflow, node) {
    return this.#participants.get(workflow)?.has(node) ?? false;
  }

  /**
   * Forget what was under way in a run that ended before its end.
   * @param {string} workflow
   */
  stop(workflow) {
    for (const [node, entry] of this.#workflows.get(workflow) ?? []) {
      if (entry.activity?.state === "working" || entry.activity?.state === "waiting") {
        this.#workflows.get(workflow)?.delete(node);
      }
    }
    this.#changed();
  }

  /**
   * @param {string} workflow
   * @returns {Entry[]} oldest report first
   */
  entries(workflow) {
    return [...(this.#workflows.get(workflow)?.values() ?? [])];
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}
