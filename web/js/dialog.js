// A modal dialog with a text that can be copied. The browser's own element brings focus, Escape and the backdrop.

import { direction, words } from "./words.js";

/**
 * @param {string} label
 * @param {() => void} onClick
 * @returns {HTMLButtonElement}
 */
export function createButton(label, onClick) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "paceline-button";
  button.textContent = label;
  button.addEventListener("click", onClick);
  return button;
}

/**
 * @param {string} icon of the frontend's own, without "pi-"
 * @param {string} label what it says to the pointer and to a screen reader
 * @param {() => void} onClick
 * @returns {HTMLButtonElement}
 */
export function createIconButton(icon, label, onClick) {
  const button = createButton("", onClick);
  button.ariaLabel = button.title = label;
  button.append(Object.assign(document.createElement("i"), { className: `pi pi-${icon}` }));
  return button;
}

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
  const dialog = document.createElement("dialog");
  dialog.className = "paceline-dialog";
  dialog.dir = direction();
  const heading = Object.assign(document.createElement("h2"), { textContent: title, id: "paceline-dialog-title" });
  dialog.setAttribute("aria-labelledby", heading.id);

  const body = document.createElement("div");
  body.className = "paceline-dialog-body";
  body.tabIndex = 0; // so that the keyboard can scroll a long report
  body.role = "region";
  body.setAttribute("aria-labelledby", heading.id);
  body.append(content);

  const buttons = document.createElement("div");
  buttons.className = "paceline-dialog-buttons";
  buttons.append(...actions);

  dialog.append(heading, body, buttons);
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
