// A modal dialog with a text that can be copied. The browser's own element brings focus, Escape and the backdrop.

import { createBox, createButton, createElement } from "./elements.js";
import { direction, words } from "./words.js";

/**
 * @param {object} options
 * @param {string} options.title
 * @param {HTMLElement} options.content
 * @param {string} options.text what the button "Copy" puts into the clipboard
 */
export function openDialog({ title, content, text }) {
  const copy = createButton(words("copy"), async () => {
    await navigator.clipboard?.writeText(text);
    copy.textContent = words("copied");
  });
  copy.disabled = !navigator.clipboard; // browsers offer it to secure pages only: https or localhost
  const close = createButton(words("close"), () => dialog.close());
  close.autofocus = true;
  const dialog = showDialog(title, content, [copy, close]);
}

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
