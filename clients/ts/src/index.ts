/** The TypeScript client of chunkstore: the generated messages and services, and what they need beside them. */
export { chunkId, codePointOffset, utf16Offset } from "./chunkId";
export { errorReason } from "./errors";
export { type DocumentInit, DocumentsNotStoredError, indexDocuments } from "./indexing";
export * from "./gen/chunkstore/v1/chunk_pb";
export * from "./gen/chunkstore/v1/chunk_purge_service_pb";
export * from "./gen/chunkstore/v1/chunk_reader_service_pb";
export * from "./gen/chunkstore/v1/chunk_writer_service_pb";
export * from "./gen/chunkstore/v1/error_reason_pb";
export * from "./gen/chunkstore/v1/explanation_pb";
export * from "./gen/chunkstore/v1/explanation_service_pb";
export * from "./gen/chunkstore/v1/filter_pb";
export * from "./gen/chunkstore/v1/indexing_service_pb";
export * from "./gen/chunkstore/v1/lexical_candidate_service_pb";
export * from "./gen/chunkstore/v1/retrieval_service_pb";
export * from "./gen/chunkstore/v1/semantic_candidate_service_pb";
export * from "./gen/chunkstore/v1/store_service_pb";
