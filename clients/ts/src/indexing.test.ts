import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { type Client, Code, ConnectError, createClient, type ServiceImpl } from "@connectrpc/connect";
import { connectNodeAdapter, createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";

import { errorReason } from "./errors";
import { hitLine } from "./example";
import { type IndexDocumentsResponseSchema, IndexingService } from "./gen/chunkstore/v1/indexing_service_pb";
import { ScoredChunkSchema } from "./gen/chunkstore/v1/retrieval_service_pb";
import { type DocumentInit, DocumentsNotStoredError, indexDocuments } from "./indexing";

type Handler = ServiceImpl<typeof IndexingService>["indexDocuments"];
type Response = MessageInitShape<typeof IndexDocumentsResponseSchema>;

async function withServer(handler: Handler, body: (client: Client<typeof IndexingService>) => Promise<void>) {
  const routes = connectNodeAdapter({
    routes: (router) => router.service(IndexingService, { indexDocuments: handler }),
  });
  const server = createServer(routes).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const baseUrl = `http://127.0.0.1:${port}`;
  const sessionManager = new Http2SessionManager(baseUrl);
  try {
    await body(createClient(IndexingService, createGrpcTransport({ baseUrl, sessionManager })));
  } finally {
    sessionManager.abort();
    server.close();
  }
}

function* documents(count: number, taken = { count: 0 }): Generator<DocumentInit> {
  const text = "text ".repeat(1000);
  for (let i = 0; i < count; i++) {
    taken.count++;
    yield { sourceId: `source-${i}`, text };
  }
}

function outcome(ordinal: number, sourceId: string): Response {
  return {
    event: { case: "outcome", value: { ordinal: BigInt(ordinal), sourceId, result: { case: "indexed", value: {} } } },
  };
}

function summary(documents: number, failed = 0): Response {
  const counts = { documents: BigInt(documents), failed: BigInt(failed), indexed: BigInt(documents - failed) };
  return { event: { case: "summary", value: counts } };
}

/** Acknowledges every document but the refused one, then sums up. */
function answering(refused?: number): Handler {
  return async function* (requests) {
    let count = 0;
    for await (const request of requests) {
      const response = outcome(count, request.document?.sourceId ?? "");
      if (count === refused && response.event?.case === "outcome") {
        response.event.value.sourceId = "";
        response.event.value.result = { case: "error", value: { code: Code.InvalidArgument } };
      }
      yield response;
      count++;
    }
    yield summary(count, refused === undefined ? 0 : 1);
  };
}

test("every document is acknowledged", async () => {
  await withServer(answering(), async (client) => {
    let outcomes = 0;
    const result = await indexDocuments(client, documents(2000), () => outcomes++);
    assert.equal(outcomes, 2000);
    assert.equal(result.indexed, 2000n);
  });
});

test("a refused document is an error that carries the summary", async () => {
  await withServer(answering(3), async (client) => {
    const refused: bigint[] = [];
    const indexing = indexDocuments(client, documents(10), ({ ordinal, result }) => {
      if (result.case === "error") {
        refused.push(ordinal);
      }
    });
    await assert.rejects(indexing, (error) => error instanceof DocumentsNotStoredError && error.summary.indexed === 9n);
    assert.deepEqual(refused, [3n]);
  });
});

test("a stream that ends early rejects with its status, and takes no more documents", async () => {
  const errorInfo = new BinaryWriter().tag(1, WireType.LengthDelimited).string("WHY");
  errorInfo.tag(2, WireType.LengthDelimited).string("chunkstore");
  const detail = { type: "google.rpc.ErrorInfo", value: errorInfo.finish() };
  const refuse: Handler = async function* () {
    const error = new ConnectError("no", Code.Unauthenticated);
    error.details.push(detail);
    throw error;
  };
  await withServer(refuse, async (client) => {
    const taken = { count: 0 };
    await assert.rejects(
      indexDocuments(client, documents(10_000, taken), () => {}),
      (error) =>
        error instanceof ConnectError && error.code === Code.Unauthenticated && errorReason(error) === "WHY",
    );
    assert.ok(taken.count < 1000, `${taken.count} documents were taken for a dead stream`);
  });
});

test("a server that does not read holds the documents back", async () => {
  const taken = { count: 0 };
  let takenUnread = 0;
  const slow: Handler = async function* (requests, context) {
    await new Promise((resolve) => setTimeout(resolve, 300));
    takenUnread = taken.count;
    yield* answering()(requests, context);
  };
  await withServer(slow, async (client) => {
    const result = await indexDocuments(client, documents(1000, taken), () => {});
    assert.equal(result.indexed, 1000n);
    assert.ok(takenUnread < 500, `${takenUnread} documents were taken that nobody read`);
  });
});

for (const [name, responses] of Object.entries({
  "no summary": [outcome(0, "source-0"), outcome(1, "source-1")],
  "a document without outcome": [outcome(0, "source-0"), summary(1)],
  "outcomes out of order": [outcome(1, "source-1"), outcome(0, "source-0"), summary(2)],
  "another source's outcome": [outcome(0, "source-1"), outcome(1, "source-0"), summary(2)],
  "one outcome too many": [outcome(0, "source-0"), outcome(1, "source-1"), outcome(2, "source-2"), summary(3)],
  "a summary of other counts": [outcome(0, "source-0"), outcome(1, "source-1"), summary(3)],
  "more after the summary": [outcome(0, "source-0"), outcome(1, "source-1"), summary(2), summary(2)],
})) {
  test(`what disagrees with the documents sent is an error: ${name}`, async () => {
    const handler: Handler = async function* (requests) {
      for await (const request of requests) {
        if (request.document?.sourceId === "source-1") {
          break;
        }
      }
      yield* responses;
    };
    await withServer(handler, async (client) => {
      await assert.rejects(
        indexDocuments(client, documents(2), () => {}),
        (error) => !(error instanceof ConnectError),
      );
    });
  });
}

test("a call that is given up on ends at the server too", async () => {
  let ended: Promise<unknown> | undefined;
  const handler: Handler = async function* (_, context) {
    ended = once(context.signal, "abort");
    yield outcome(7, "source-0");
    await ended;
  };
  await withServer(handler, async (client) => {
    await assert.rejects(indexDocuments(client, documents(10_000), () => {}));
    await ended;
  });
});

test("an absent score is null and zero is zero", () => {
  const hit = create(ScoredChunkSchema, { chunk: { id: "id", sourceId: "s" }, score: 0.5, semantic: 0 });
  assert.equal(
    JSON.stringify(hitLine(hit, true)),
    '{"id":"id","source_id":"s","score":0.5,"semantic":0,"lexical":null,"identifier":null,' +
      '"semantic_share":null,"lexical_share":null,"identifier_share":null,"partial":true}',
  );
});
