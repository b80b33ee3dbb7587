-- The planner takes a tenant that its statistics do not know for a row or two, and then walks all of its chunks to find
-- ten by their ids. So statistics are made anew when a hundredth of the table has changed, instead of a tenth.

ALTER TABLE chunkstore.chunks SET (autovacuum_analyze_scale_factor = 0.01, autovacuum_analyze_threshold = 1000);
