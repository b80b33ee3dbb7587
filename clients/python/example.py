"""Stream documents in and ask a filtered question, with the Python client. Run it with `--help` for its options."""

from __future__ import annotations

import argparse
import json
import sys

from chunkstore.client import ChunkstoreClient, Document, DocumentsFailedError, ServiceError
from chunkstore.v1.filter_pb2 import Filter, MetadataCondition, NumberRange


def main() -> int:
    """Index and ask; prints the summary and a line a hit as JSON, null where a channel did not rank the hit.

    `terms` are the query's terms that the hit holds, with what each gives to the lexical score.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", default="127.0.0.1:50051")
    parser.add_argument("--tenant", default="example")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--query", default="warranty 7")
    parser.add_argument("--below", type=float, default=50, help="ask for products of a lower number alone")
    options = parser.parse_args()
    documents = (
        Document(f"doc-{number}", f"Warranty terms of product number {number}.", metadata={"number": number})
        for number in range(options.count)
    )
    try:
        with ChunkstoreClient(options.address, options.tenant) as client:
            report = client.index_documents(documents)
            print(json.dumps({"documents": report.summary.documents, "failed": report.summary.failed}))
            below = Filter(metadata=MetadataCondition(path=["number"], range=NumberRange(lt=options.below)))
            for hit in client.retrieve_chunks(options.query, k=5, where=below, explain=True).chunks:
                line = {
                    "source_id": hit.chunk.source_id,
                    "score": hit.score,
                    "semantic": hit.semantic if hit.HasField("semantic") else None,
                    "lexical": hit.lexical if hit.HasField("lexical") else None,
                    "terms": {term.term: term.share for term in hit.explanation.terms if term.frequency},
                }
                print(json.dumps(line))
    except (DocumentsFailedError, ServiceError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
