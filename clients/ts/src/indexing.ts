import type { MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions, Client } from "@connectrpc/connect";

import type {
  DocumentOutcome,
  DocumentSchema,
  IndexDocumentsRequestSchema,
  IndexingService,
  IndexSummary,
} from "./gen/chunkstore/v1/indexing_service_pb";

/** A document to index, as the generated client takes it. */
export type DocumentInit = MessageInitShape<typeof DocumentSchema>;

/** Thrown when the stream came to its end, yet some documents were refused. */
export class DocumentsNotStoredError extends Error {
  override readonly name = "DocumentsNotStoredError";

  constructor(
    /** The whole stream's summary. */
    readonly summary: IndexSummary,
  ) {
    super(`${summary.failed} of ${summary.documents} documents were not stored`);
  }
}

/**
 * Streams documents to the server and calls onOutcome with the outcome of each, in the order in which they were sent.
 * A document is stored once its outcome says so, whatever becomes of the stream afterwards.
 *
 * Documents are taken no faster than the server reads them, and no more once the stream has ended. Resolves only if
 * every document was stored; rejects with a DocumentsNotStoredError if some were refused, with a ConnectError if the
 * stream failed.
 */
export async function indexDocuments(
  client: Client<typeof IndexingService>,
  documents: Iterable<DocumentInit> | AsyncIterable<DocumentInit>,
  onOutcome: (outcome: DocumentOutcome) => void,
  options?: CallOptions,
): Promise<IndexSummary> {
  const unacknowledged: string[] = [];
  let allSent = false;

  async function* requests(): AsyncGenerator<MessageInitShape<typeof IndexDocumentsRequestSchema>> {
    for await (const document of documents) {
      unacknowledged.push(document.sourceId ?? "");
      // Resumed when the transport has written it, for which HTTP/2 waits until the server reads.
      yield { document };
    }
    allSent = true;
  }

  let received = 0n;
  let failed = 0n;
  let summary: IndexSummary | undefined;
  // Leaving the loop below does not end the call by itself.
  const left = new AbortController();
  const signal = AbortSignal.any([left.signal, ...(options?.signal ? [options.signal] : [])]);
  try {
    for await (const { event } of client.indexDocuments(requests(), { ...options, signal })) {
      if (summary !== undefined) {
        throw new Error("the stream went on after the summary");
      }
      if (event.case === "outcome") {
        checkOutcome(event.value, received, unacknowledged.shift());
        received++;
        if (event.value.result.case !== "indexed") {
          failed++;
        }
        onOutcome(event.value);
      } else if (event.case === "summary") {
        summary = event.value;
      }
    }
  } finally {
    left.abort();
  }
  if (summary === undefined) {
    throw new Error("the stream ended without a summary");
  }
  if (!allSent || unacknowledged.length > 0 || summary.documents !== received || summary.failed !== failed) {
    throw new Error(
      `the summary of ${summary.documents} documents, ${summary.failed} failed, disagrees with ` +
        `${received} outcomes, ${failed} of them errors, or came before every document was sent`,
    );
  }
  if (summary.failed > 0n) {
    throw new DocumentsNotStoredError(summary);
  }
  return summary;
}

function checkOutcome(outcome: DocumentOutcome, ordinal: bigint, sourceId: string | undefined): void {
  if (sourceId === undefined) {
    throw new Error(`outcome ${ordinal} came before its document was sent`);
  }
  if (outcome.ordinal !== ordinal) {
    throw new Error(`outcome ${outcome.ordinal} came in place of ${ordinal}`);
  }
  if (outcome.sourceId !== sourceId && (outcome.sourceId !== "" || outcome.result.case === "indexed")) {
    throw new Error(`outcome ${ordinal} is of another source than the document`);
  }
}
