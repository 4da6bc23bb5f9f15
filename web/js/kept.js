// What this machine has measured, kept by the server with the user's settings: asking for a file of the user's that is not
// there yet would put an error on the console.

import { api } from "./comfy.js";

/** @template Value */
export class Kept {
  /**
   * @param {string} name of the setting
   * @param {number} most entries
   */
  constructor(name, most) {
    this.name = /** @type {any} */ (name); // the frontend's types list the frontend's settings only
    this.most = most;
  }

  /** @returns {Promise<Record<string, Value>>} */
  async load() {
    return /** @type {any} */ (await api.getSetting(this.name).catch(() => null)) ?? {};
  }

  /**
   * @param {Record<string, Value>} known what was loaded
   * @param {Record<string, Value>} news
   */
  async store(known, news) {
    for (const [key, value] of Object.entries(news)) {
      delete known[key]; // the newest stand at the end
      known[key] = value;
    }
    for (const old of Object.keys(known).slice(0, -this.most)) delete known[old];
    await api.storeSetting(this.name, /** @type {any} */ (known));
  }
}
