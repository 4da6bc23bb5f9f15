// What this machine has measured, kept by the server with the user's settings: asking for a file of the user's that is not
// there yet would put an error on the console.

import { api } from "./comfy.js";

/** @template Value */
export class Kept {
  /** @type {Promise<Record<string, Value>> | undefined} */
  #known;
  /** @type {Promise<void>} */
  #stored = Promise.resolve();

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
    this.#known ??= this.#ask().catch(() => ({}));
    return this.#known;
  }

  /** @returns {Promise<Record<string, Value>>} */
  async #ask() {
    return /** @type {any} */ (await api.getSetting(this.name)) ?? {};
  }

  /**
   * @param {string} key
   * @param {(before: Value | undefined) => Value} change
   * @returns {Promise<void>} of one after the other
   */
  store(key, change) {
    this.#stored = this.#stored.catch(() => {}).then(() => this.#store(key, change));
    return this.#stored;
  }

  /**
   * @param {string} key
   * @param {(before: Value | undefined) => Value} change
   */
  async #store(key, change) {
    const known = await this.#ask(); // another tab can have stored something since
    const value = change(known[key]);
    delete known[key]; // the newest stand at the end
    known[key] = value;
    for (const old of Object.keys(known).slice(0, -this.most)) delete known[old];
    this.#known = Promise.resolve(known);
    await api.storeSetting(this.name, /** @type {any} */ (known));
  }
}
