-- What filters look for in metadata. The index takes up equality alone: other conditions are compared row by row.
--
-- Every query with a filter reads the list of entries that are not in the tree yet, so it is kept short, in kB.
CREATE INDEX IF NOT EXISTS chunks_by_metadata ON chunkstore.chunks USING gin (metadata jsonb_path_ops)
    WITH (gin_pending_list_limit = 1024);
