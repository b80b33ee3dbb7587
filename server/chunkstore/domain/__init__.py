"""The rules, free of I/O: chunks and ids, analysis, BM25, similarity, fusion, results, errors."""
