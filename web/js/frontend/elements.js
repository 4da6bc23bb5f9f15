// Elements of the page, and a modal dialog.

import { direction } from "./language.js";

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Partial<HTMLElementTagNameMap[Tag]>} [properties]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function createElement(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/**
 * @param {string} className
 * @param {...(Node | string)} children
 */
export function createBox(className, ...children) {
  return createElement("div", { className }, ...children);
}

/**
 * @param {string} text that keeps its order in a line that runs the other way, such as "2.8 s" in Arabic
 */
export function createApart(text) {
  return createElement("bdi", {}, text);
}

/**
 * @param {string} label
 * @param {() => void} onClick
 */
export function createButton(label, onClick) {
  const button = createElement("button", { type: "button", className: "paceline-button", textContent: label });
  button.addEventListener("click", onClick);
  return button;
}

/**
 * @param {[string, string][]} choices what they are, and what they are called
 * @param {string} chosen
 * @param {(name: string) => void} choose
 * @returns {HTMLElement} a button for each; the one that is pressed is in use
 */
export function createChoice(choices, chosen, choose) {
  const buttons = choices.map(([name, label]) => {
    const button = createButton(label, () => {
      choose(name);
      for (const each of buttons) each.ariaPressed = String(each === button);
    });
    button.ariaPressed = String(name === chosen);
    return button;
  });
  return createElement("div", { className: "paceline-modes", role: "group" }, ...buttons);
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
