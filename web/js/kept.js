// What this machine has measured, kept by the server with the user's settings: asking for a file of the user's that is not
// there yet would put an error on the console.

import { api } from "./comfy.js";

/** @template Value */
export class Kept {
  /** @type {Promise<Record<string, Value>> | undefined} */
  #known;

  /**
   * @param {string} name of the setting
   * @param {number} most entries
   */
  constructor(name, most) {
    this.name = /** @type {any} */ (name); // the frontend's types list the frontend's settings only
    this.most = most;
  }

  /** @returns {Promise<Record<string, Value>>} which is asked for once */
  load() {
    this.#known ??= api.getSetting(this.name).then((known) => /** @type {any} */ (known) ?? {}, () => ({}));
    return this.#known;
  }

  /**
   * @param {string} key
   * @param {Value} value
   */
  async store(key, value) {
    const known = await this.load();
    delete known[key]; // the newest stand at the end
    known[key] = value;
    for (const old of Object.keys(known).slice(0, -this.most)) delete known[old];
    await api.storeSetting(this.name, /** @type {any} */ (known));
  }
}
