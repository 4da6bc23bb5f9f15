// A modal dialog. The browser's own element brings focus, Escape and the backdrop.

import { createBox, createElement } from "./elements.js";
import { direction } from "./words.js";

/**
 * @param {string} title
 * @param {HTMLElement} content
 * @param {HTMLButtonElement[]} actions
 * @returns {HTMLDialogElement} which is gone when it is closed
 */
export function showDialog(title, content, actions) {
  const heading = createElement("h2", { textContent: title, id: "paceline-dialog-title" });
  const body = createBox("paceline-dialog-body", content);
  body.tabIndex = 0; // so that the keyboard can scroll a long report
  body.role = "region";
  const buttons = createBox("paceline-dialog-buttons", ...actions);
  const named = { className: "paceline-dialog", dir: direction() };
  const dialog = createElement("dialog", named, heading, body, buttons);
  for (const part of [dialog, body]) part.setAttribute("aria-labelledby", heading.id);
  return showModal(dialog);
}

/**
 * @param {HTMLDialogElement} dialog
 * @returns {HTMLDialogElement} which is gone when it is closed
 */
export function showModal(dialog) {
  dialog.addEventListener("close", () => dialog.remove());
  // The frontend's shortcuts listen on the window; keys typed here are meant for the dialog.
  dialog.addEventListener("keydown", (event) => event.stopPropagation());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
