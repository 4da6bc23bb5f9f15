// What our nodes last reported, for every workflow that this page knows a run of.
//
// Node ids are only unique within a workflow, and the frontend keeps several workflows in tabs. So an activity belongs
// to a workflow's id and to an execution id: the ids of the subgraph nodes on the way and of the node, joined by ":".

/** What is known of the last run of a workflow. */
class LastRun {
  promptId = "";
  /** @type {Map<string, Entry>} */
  entries = new Map();
  /** @type {Set<string>} */
  participants = new Set();
  /** @type {Map<string, string>} what each node was set to, by execution id */
  settings = new Map();
}

/** Tells its listeners ("change" events) about every change; `detail` has the nodes, or null for all of them. */
export class ActivityStore extends EventTarget {
  /** @type {Map<string, LastRun>} */
  #runs = new Map();

  /**
   * Remember that a run begins.
   * @param {string} workflow
   * @param {string} promptId
   * @param {Map<string, string>} settings of all our nodes in it
   */
  begin(workflow, promptId, settings) {
    const run = this.#run(workflow);
    if (run.promptId === promptId) return;
    run.promptId = promptId;
    run.settings = settings;
  }

  /**
   * Remember what a node reported.
   * @param {string} workflow
   * @param {string} node execution id
   * @param {Omit<Entry, "node">} news
   */
  update(workflow, node, news) {
    const { entries, settings } = this.#run(workflow);
    const entry = { ...entries.get(node), stale: false, foretold: false, ...news, node, then: settings.get(node) };
    // Deleted first, so that the order of the map is the order of the last reports.
    entries.delete(node);
    entries.set(node, entry);
    this.#changed([node]);
  }

  /**
   * Remember what is known of nodes that have not run, and forget what was known before.
   * @param {string} workflow
   * @param {Record<string, Activity>} known by execution id
   */
  foretell(workflow, known) {
    const { entries } = this.#run(workflow);
    for (const [node, { foretold }] of entries) if (foretold) entries.delete(node);
    for (const [node, activity] of Object.entries(known)) {
      if (!entries.has(node)) entries.set(node, { node, activity, foretold: true });
    }
    this.#changed(null);
  }

  /**
   * End a run. Nodes that did not take part in it are forgotten: what they did earlier says nothing about it.
   * @param {string} workflow
   * @param {Set<string>} participants execution ids
   */
  finish(workflow, participants) {
    const run = this.#run(workflow);
    run.participants = participants;
    for (const node of [...run.entries.keys()]) {
      if (!participants.has(node)) run.entries.delete(node);
    }
    this.#changed(null);
  }

  /**
   * @param {string} workflow
   * @param {string} node execution id
   * @returns {boolean} whether the node took part in the last run
   */
  tookPart(workflow, node) {
    return this.#runs.get(workflow)?.participants.has(node) ?? false;
  }

  /**
   * End what was under way in a run that ended before its end.
   * @param {string} workflow
   * @param {Set<string>} done execution ids of nodes whose own work was over
   * @param {(activity: Activity) => Activity} ended
   */
  stop(workflow, done, ended) {
    const { entries } = this.#run(workflow);
    for (const [node, entry] of entries) {
      if (entry.activity && !done.has(node)) entries.set(node, { ...entry, activity: ended(entry.activity) });
    }
    this.#changed(null);
  }

  /**
   * Compare what the nodes are set to now with what they were set to when they reported.
   * @param {string} workflow
   * @param {Map<string, string>} settings by execution id
   */
  compare(workflow, settings) {
    const run = this.#runs.get(workflow);
    if (!run) return;
    const changed = [];
    for (const [node, entry] of run.entries) {
      const { then } = entry; // of an earlier run than the last one, where that has not come to the node
      const now = settings.get(node);
      const stale = then !== undefined && now !== undefined && now !== then;
      if (stale === (entry.stale ?? false) && (!stale || now === entry.now)) continue;
      run.entries.set(node, { ...entry, stale, now });
      changed.push(node);
    }
    if (changed.length) this.#changed(changed);
  }

  /**
   * @param {string} workflow
   * @param {string} node execution id
   */
  entry(workflow, node) {
    return this.#runs.get(workflow)?.entries.get(node);
  }

  /**
   * @param {string} workflow
   * @returns {Entry[]} oldest report first
   */
  entries(workflow) {
    return [...(this.#runs.get(workflow)?.entries.values() ?? [])];
  }

  /**
   * @param {string} workflow
   * @returns {boolean} whether nodes have said of its last run what they did, and all of them that they did nothing
   */
  idle(workflow) {
    const states = this.entries(workflow).flatMap(({ activity, foretold }) => (!foretold && activity?.state) || []);
    return states.length > 0 && states.every((state) => state === "inactive");
  }

  /** @param {string} workflow */
  #run(workflow) {
    const run = this.#runs.get(workflow) ?? new LastRun();
    this.#runs.set(workflow, run);
    return run;
  }

  /** @param {string[] | null} nodes */
  #changed(nodes) {
    this.dispatchEvent(new CustomEvent("change", { detail: nodes }));
  }
}
