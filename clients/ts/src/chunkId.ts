import { createHash } from "node:crypto";

/**
 * Returns the id of a chunk: hex SHA-256 of the UTF-8 source id, one NUL byte, and the UTF-8 text.
 *
 * Both are taken as they are; in particular nothing is normalized. What the server refuses has no id and throws a
 * RangeError: an empty string, a lone surrogate, and a NUL.
 */
export function chunkId(sourceId: string, text: string): string {
  check("source id", sourceId);
  check("text", text);
  return createHash("sha256").update(sourceId, "utf8").update("\0").update(text, "utf8").digest("hex");
}

/**
 * Returns where the code point with this index starts in text, in UTF-16 code units.
 *
 * Chunk.startChar and Chunk.endChar count code points of the document, JavaScript strings count code units; so a
 * chunk's text is document.slice(utf16Offset(document, startChar), utf16Offset(document, endChar)). The number of
 * code points in text gives text.length; anything above it, negative or fractional, throws a RangeError.
 */
export function utf16Offset(text: string, codePoint: number): number {
  let offset = 0;
  for (let index = 0; index !== codePoint; index++) {
    const value = text.codePointAt(offset);
    if (value === undefined) {
      throw new RangeError(`code point ${codePoint} is outside the text`);
    }
    offset += value > 0xffff ? 2 : 1;
  }
  return offset;
}

/**
 * The inverse of utf16Offset: returns how many code points of text precede the UTF-16 offset.
 *
 * An offset outside text, or inside a surrogate pair, throws a RangeError.
 */
export function codePointOffset(text: string, offset: number): number {
  let index = 0;
  let position = 0;
  for (; position < offset; index++) {
    const value = text.codePointAt(position);
    if (value === undefined) {
      break;
    }
    position += value > 0xffff ? 2 : 1;
  }
  if (position !== offset) {
    throw new RangeError(`code unit ${offset} starts no code point of the text`);
  }
  return index;
}

function check(what: string, value: string): void {
  if (value === "") {
    throw new RangeError(`${what} is empty`);
  }
  if (value.includes("\0")) {
    throw new RangeError(`${what} holds NUL`);
  }
  if (!value.isWellFormed()) {
    throw new RangeError(`${what} holds a lone surrogate`);
  }
}
