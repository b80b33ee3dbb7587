-- A page holds three rows of 2,712 bytes. Of a longer row, text and metadata are compressed and then moved out, and then
-- postings compressed, until it is no longer than that. Rows written before stay as they are until they are written
-- again, or the table is, by VACUUM FULL.

ALTER TABLE chunkstore.chunks SET (toast_tuple_target = 2712);
