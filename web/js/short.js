// The part of an activity that fits on a badge.

/**
 * The server writes clauses, the important one first: "active in 3 of 7 blocks; 384 -> 192 tokens; 0 fallbacks". A
 * badge has room for the first, and for the last where something did not go as asked.
 * @param {import("./store.js").Activity} activity
 * @returns {string}
 */
export function shortText({ state, text }) {
  const clauses = text.split(";").map((clause) => clause.trim());
  const last = clauses[clauses.length - 1];
  return state === "partly" && clauses.length > 1 ? `${clauses[0]} · ${last}` : clauses[0];
}
