/**
 * Indexes documents and retrieves passages, checking that every document is acknowledged.
 *
 * Prints JSON lines: the stream's summary, then the hits, best first, each with every channel's score and its share of the
 * fused one. In a hit null means that the channel did not rank it, which is not a score of 0. Exits with 1, saying why on stderr, if a document or a call fails.
 */
import { parseArgs } from "node:util";

import { Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import { chunkId } from "./chunkId";
import { errorReason } from "./errors";
import { ErrorReason } from "./gen/chunkstore/v1/error_reason_pb";
import {
  DocumentFormat,
  type DocumentOutcome,
  IndexingService,
  type IndexSummary,
} from "./gen/chunkstore/v1/indexing_service_pb";
import { RetrievalService, type ScoredChunk } from "./gen/chunkstore/v1/retrieval_service_pb";
import { type DocumentInit, DocumentsNotStoredError, indexDocuments } from "./indexing";

const queryTimeoutMs = 30_000;
const topics = ["refunds", "invoices", "shipping", "warranty", "passwords"];

async function main(): Promise<void> {
  const { values: flags } = parseArgs({
    options: {
      address: { type: "string", default: "127.0.0.1:50051" },
      tenant: { type: "string", default: "example" },
      count: { type: "string", default: "200" },
      query: { type: "string", default: "warranty 138" },
    },
  });
  const count = Number(flags.count);
  if (!Number.isSafeInteger(count)) {
    throw new Error("--count takes a whole number");
  }
  const withTenant: Interceptor = (next) => (request) => {
    request.header.set("x-tenant-id", flags.tenant);
    return next(request);
  };
  const transport = createGrpcTransport({ baseUrl: `http://${flags.address}`, interceptors: [withTenant] });

  const indexing = createClient(IndexingService, transport);
  const indexed = indexDocuments(indexing, notes(count), reportFailure).catch((error: unknown) => {
    if (error instanceof DocumentsNotStoredError) {
      print(summaryLine(error.summary));
    }
    throw error;
  });
  const summary = await named("IndexDocuments", indexed);
  print(summaryLine(summary));

  const retrieval = createClient(RetrievalService, transport);
  const request = retrieval.retrieveChunks({ query: flags.query }, { timeoutMs: queryTimeoutMs });
  const answer = await named("RetrieveChunks", request);
  for (const hit of answer.chunks) {
    const { id = "", sourceId = "", text = "" } = hit.chunk ?? {};
    if (id !== chunkId(sourceId, text)) {
      throw new Error(`chunk ${id} has another id than the derived one`);
    }
    print(hitLine(hit, answer.partial));
  }
}

function summaryLine({ documents, indexed, failed, blank, counts }: IndexSummary): object {
  return {
    documents: Number(documents),
    indexed: Number(indexed),
    failed: Number(failed),
    blank: Number(blank),
    written: Number(counts?.written ?? 0n),
    unchanged: Number(counts?.unchanged ?? 0n),
  };
}

/** Returns the example's line for a hit; a score that is absent becomes null, which 0 does not. */
export function hitLine(hit: ScoredChunk, partial: boolean): object {
  return {
    id: hit.chunk?.id,
    source_id: hit.chunk?.sourceId,
    score: hit.score,
    semantic: hit.semantic ?? null,
    lexical: hit.lexical ?? null,
    identifier: hit.identifier ?? null,
    // What each channel gives to the score; they add up to it.
    semantic_share: hit.semanticShare ?? null,
    lexical_share: hit.lexicalShare ?? null,
    identifier_share: hit.identifierShare ?? null,
    partial,
  };
}

function* notes(count: number): Generator<DocumentInit> {
  for (let i = 0; i < count; i++) {
    yield {
      sourceId: `note-${i}`,
      text: `Note ${i} is about ${topics[i % topics.length]}.`,
      format: DocumentFormat.PASSAGE,
    };
  }
}

function reportFailure(outcome: DocumentOutcome): void {
  if (outcome.result.case === "error") {
    const { code, reason, message } = outcome.result.value;
    console.error(`document ${outcome.ordinal}: ${codeName(code)} (${ErrorReason[reason]}): ${message}`);
  }
}

async function named<T>(call: string, result: Promise<T>): Promise<T> {
  try {
    return await result;
  } catch (error) {
    throw new Error(`${call}: ${describe(error)}`, { cause: error });
  }
}

function describe(error: unknown): string {
  if (!(error instanceof ConnectError)) {
    return error instanceof Error ? error.message : String(error);
  }
  const reason = errorReason(error);
  return `${codeName(error.code)}${reason && ` (${reason})`}: ${error.rawMessage}`;
}

function codeName(code: number): string {
  return (Code[code] ?? `Code${code}`).replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}

function print(line: object): void {
  console.log(JSON.stringify(line));
}

if (require.main === module) {
  main().catch((error: unknown) => {
    console.error(describe(error));
    process.exitCode = 1;
  });
}
