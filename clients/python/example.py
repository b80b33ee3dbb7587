"""Stream documents in and ask a question, with the Python client. Run it with `--help` for its options."""

from __future__ import annotations

import argparse
import json
import sys

from chunkstore.client import ChunkstoreClient, Document, DocumentsFailedError, ServiceError


def main() -> int:
    """Index and ask; prints the summary and a line a hit as JSON, null where a channel did not rank the hit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", default="127.0.0.1:50051")
    parser.add_argument("--tenant", default="demo")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--query", default="warranty 7")
    options = parser.parse_args()
    documents = (
        Document(f"doc-{number}", f"Warranty terms of product number {number}.", metadata={"number": number})
        for number in range(options.count)
    )
    try:
        with ChunkstoreClient(options.address, options.tenant) as client:
            report = client.index_documents(documents)
            print(json.dumps({"documents": report.summary.documents, "failed": report.summary.failed}))
            for hit in client.retrieve_chunks(options.query, k=5).chunks:
                semantic = hit.semantic if hit.HasField("semantic") else None
                lexical = hit.lexical if hit.HasField("lexical") else None
                line = {"source_id": hit.chunk.source_id, "score": hit.score, "semantic": semantic, "lexical": lexical}
                print(json.dumps(line))
    except (DocumentsFailedError, ServiceError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
