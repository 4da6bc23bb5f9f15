// A card of 1200 x 630 pixels to show to others: both pictures, the finding, and what it was measured on.

import { createButton, createElement, createIconButton } from "./elements.js";
import { words, wordsOf } from "./words.js";
import { textChunks, withChunks } from "./png.js";
import { number } from "./said.js";

const [WIDTH, HEIGHT, MARGIN, GAP] = [1200, 630, 40, 16];
const PICTURE_HEIGHT = 310;
const INK = "#f4f4f5";
const PALE = "#a9a9b4";
const GROUND = "#15161a";
const MAT = "#202228";

/**
 * @param {object} content
 * @param {HTMLImageElement[]} content.images beside each other
 * @param {string} content.headline the finding
 * @param {boolean} content.proved whether the headline is large
 * @param {string[]} content.lines below it
 * @param {string} [content.sheet] address of a PNG that has the workflow
 * @returns {Promise<Blob>} PNG, with that workflow in it
 */
export async function createCard({ images, headline, proved, lines, sheet }) {
  const canvas = createElement("canvas", { width: WIDTH, height: HEIGHT });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.fillStyle = GROUND;
  context.fillRect(0, 0, WIDTH, HEIGHT);
  const width = (WIDTH - 2 * MARGIN - (images.length - 1) * GAP) / images.length;
  images.forEach((image, index) => drawWhole(context, image, MARGIN + index * (width + GAP), width));
  let y = MARGIN + PICTURE_HEIGHT + (proved ? 72 : 56);
  write(context, headline, y, proved ? 60 : 34, INK, 700);
  y += proved ? 42 : 38;
  const [verdict, ...others] = lines;
  context.font = "400 21px system-ui, sans-serif";
  for (const line of wrapped(context, verdict)) {
    write(context, line, y, 21, INK);
    y += 29;
  }
  for (const line of others) {
    write(context, line, y, 18, PALE);
    y += 26;
  }
  context.textAlign = "right";
  write(context, "Paceline · ComfyUI", HEIGHT - 22, 18, PALE, 600, WIDTH - MARGIN);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  if (!sheet) return blob;
  const [card, source] = await Promise.all([blob, await (await fetch(sheet)).blob()].map(bytes));
  return withChunks(card, textChunks(source));
}

/**
 * Draw a whole picture, as large as its place allows, in the middle of it.
 * @param {CanvasRenderingContext2D} context
 * @param {HTMLImageElement} image
 * @param {number} x
 * @param {number} place its width
 */
function drawWhole(context, image, x, place) {
  const { naturalWidth, naturalHeight } = image;
  const scale = Math.min(place / naturalWidth, PICTURE_HEIGHT / naturalHeight);
  const [width, height, y] = [naturalWidth * scale, naturalHeight * scale, MARGIN];
  context.fillStyle = MAT;
  context.fillRect(x, y, place, PICTURE_HEIGHT);
  context.imageSmoothingEnabled = scale < 3;
  context.imageSmoothingQuality = "high";
  context.drawImage(image, x + (place - width) / 2, y + (PICTURE_HEIGHT - height) / 2, width, height);
  context.font = "600 20px system-ui, sans-serif";
  const label = image.alt;
  context.fillStyle = "rgb(0 0 0 / 70%)";
  context.fillRect(x + 12, y + 12, context.measureText(label).width + 24, 34);
  context.fillStyle = "#fff";
  context.fillText(label, x + 24, y + 36);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} y
 * @param {number} size
 * @param {string} colour
 * @param {number} weight
 * @param {number} x
 */
function write(context, text, y, size, colour, weight = 400, x = MARGIN) {
  context.fillStyle = colour;
  context.font = `${weight} ${size}px system-ui, sans-serif`;
  context.fillText(text, x, y, WIDTH - 2 * MARGIN);
}

/**
 * @param {CanvasRenderingContext2D} context with the font of the text
 * @param {string} text
 * @returns {string[]} lines that fit
 */
function wrapped(context, text) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines[lines.length - 1]} ${word}`.trim();
    if (context.measureText(longer).width <= WIDTH - 2 * MARGIN) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

/** @param {Blob} blob */
async function bytes(blob) {
  return new Uint8Array(await blob.arrayBuffer());
}

/**
 * @param {() => Promise<Blob>} make
 * @returns {HTMLButtonElement[]} that copy and save a card
 */
export function cardButtons(make) {
  const save = createIconButton("download", words("saveCard"), async () => {
    const link = createElement("a", { href: URL.createObjectURL(await make()), download: "paceline.png" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  });
  // Browsers offer the clipboard to secure pages only: https or localhost.
  if (!navigator.clipboard?.write) return [save];
  const copy = createButton(words("copyCard"), async () => {
    // A browser writes the picture anew there, without the workflow.
    await navigator.clipboard.write([new ClipboardItem({ "image/png": make() })]);
    copy.textContent = words("copied");
    setTimeout(() => (copy.textContent = words("copyCard")), 2000);
  });
  return [copy, save];
}

/**
 * @param {Comparison} comparison
 * @returns {{headline: string, proved: boolean}} e.g. "1.62x faster", only where the rounds prove it
 */
export function finding({ found, speedup, quality }) {
  if (found === "faster") return { headline: `${number(speedup, ".2f")}x ${words("faster")}`, proved: true };
  if (found === "slower") return { headline: `${number(1 / speedup, ".2f")}x ${words("slower")}`, proved: true };
  if (/^(another|no) /.test(quality)) return { headline: qualityWords(quality), proved: false };
  return { headline: words("notProved"), proved: false };
}

/** @param {string} quality */
export function qualityWords(quality) {
  return wordsOf(`quality_${quality.replaceAll(" ", "_")}`);
}
