// A card of 1200 x 630 pixels to show to others: both pictures, the finding, and what it was measured on.

import { createElement } from "./elements.js";
import { words, wordsOf } from "./words.js";
import { textChunks, withChunks } from "./png.js";
import { number } from "./said.js";

const [WIDTH, HEIGHT, MARGIN, GAP] = [1200, 630, 40, 16];
const PICTURE = { width: (WIDTH - 2 * MARGIN - GAP) / 2, height: 310 };
const INK = "#f4f4f5";
const PALE = "#a9a9b4";
const GROUND = "#15161a";
const MAT = "#202228";

/**
 * @param {object} content
 * @param {HTMLImageElement[]} content.images left and right
 * @param {string} content.headline the finding
 * @param {boolean} content.proved whether the headline is large
 * @param {string[]} content.lines below it
 * @param {string} content.sheet address of a PNG that has the workflow
 * @returns {Promise<Blob>} PNG, with the workflow in it
 */
export async function createCard({ images, headline, proved, lines, sheet }) {
  const canvas = createElement("canvas", { width: WIDTH, height: HEIGHT });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.fillStyle = GROUND;
  context.fillRect(0, 0, WIDTH, HEIGHT);
  images.forEach((image, index) => {
    drawWhole(context, image, MARGIN + index * (PICTURE.width + GAP), MARGIN);
  });
  let y = MARGIN + PICTURE.height + (proved ? 72 : 56);
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
  const [card, source] = await Promise.all([blob, await (await fetch(sheet)).blob()].map(bytes));
  return withChunks(card, textChunks(source));
}

/**
 * Draw a whole picture, as large as its place allows, in the middle of it.
 * @param {CanvasRenderingContext2D} context
 * @param {HTMLImageElement} image
 * @param {number} x
 * @param {number} y
 */
function drawWhole(context, image, x, y) {
  const { naturalWidth, naturalHeight } = image;
  const scale = Math.min(PICTURE.width / naturalWidth, PICTURE.height / naturalHeight);
  const [width, height] = [naturalWidth * scale, naturalHeight * scale];
  context.fillStyle = MAT;
  context.fillRect(x, y, PICTURE.width, PICTURE.height);
  context.imageSmoothingEnabled = scale < 3;
  context.imageSmoothingQuality = "high";
  context.drawImage(image, x + (PICTURE.width - width) / 2, y + (PICTURE.height - height) / 2, width, height);
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
 * Put a picture into the clipboard. A browser writes the picture anew there, without the workflow.
 * @param {Promise<Blob>} card
 */
export function copyPicture(card) {
  return navigator.clipboard.write([new ClipboardItem({ "image/png": card })]);
}

/**
 * Save a picture as a file of the user's.
 * @param {Blob} card
 * @param {string} name
 */
export function savePicture(card, name) {
  const link = createElement("a", { href: URL.createObjectURL(card), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
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
