import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { chunkId, codePointOffset, utf16Offset } from "./chunkId";

interface Vector {
  name: string;
  source_id: string;
  text: string;
  id: string;
}

const vectorsPath = join(__dirname, "../../../tests/vectors/chunk_ids.json");
const vectors = JSON.parse(readFileSync(vectorsPath, "utf8")) as Vector[];

test("there are shared vectors", () => {
  assert.notEqual(vectors.length, 0);
});

for (const vector of vectors) {
  test(`chunkId agrees with the shared vector: ${vector.name}`, () => {
    assert.equal(chunkId(vector.source_id, vector.text), vector.id);
  });
}

test("chunkId refuses what the server refuses", () => {
  for (const [sourceId, text] of [
    ["", "text"],
    ["source", ""],
    ["a\0b", "text"],
    ["source", "a\0b"],
    ["a\ud83d", "text"],
    ["source", "\ude00b"],
  ] as const) {
    assert.throws(() => chunkId(sourceId, text), RangeError);
  }
});

test("offsets convert both ways", () => {
  const text = "n\u00e9\u{1f600}e\u0301x"; // 6 code points of 1, 1, 2, 1, 1 and 1 code units
  for (const [codePoint, offset] of [0, 1, 2, 4, 5, 6, 7].entries()) {
    assert.equal(utf16Offset(text, codePoint), offset);
    assert.equal(codePointOffset(text, offset), codePoint);
  }
  for (const codePoint of [-1, 0.5, 7]) {
    assert.throws(() => utf16Offset(text, codePoint), RangeError);
  }
  for (const offset of [-1, 0.5, 3, 8]) {
    assert.throws(() => codePointOffset(text, offset), RangeError);
  }
});
