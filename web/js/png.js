// The texts in a PNG file: ComfyUI keeps the workflow there, so that a picture can be dropped on the canvas.

const SIGNATURE = 8;
const HEADER_END = SIGNATURE + 25; // the chunk IHDR has 13 bytes of data, and 12 around them
const TEXTS = ["tEXt", "zTXt", "iTXt"];

/**
 * @param {Uint8Array} png
 * @returns {Uint8Array[]} its chunks of text, whole, with their checksums
 */
export function textChunks(png) {
  const view = new DataView(png.buffer, png.byteOffset, png.byteLength);
  const found = [];
  for (let at = SIGNATURE; at + 12 <= png.length; ) {
    const end = at + 12 + view.getUint32(at);
    const type = String.fromCharCode(...png.subarray(at + 4, at + 8));
    if (TEXTS.includes(type)) found.push(png.subarray(at, end));
    at = end;
  }
  return found;
}

/**
 * @param {Uint8Array} png
 * @param {Uint8Array[]} chunks
 * @returns {Blob} the same picture with them
 */
export function withChunks(png, chunks) {
  const parts = [png.subarray(0, HEADER_END), ...chunks, png.subarray(HEADER_END)];
  return new Blob(/** @type {BlobPart[]} */ (parts), { type: "image/png" });
}
