package main

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/chunkstore/chunkstore/clients/go/chunkstore/v1"
)

func TestAnAbsentScoreIsNullAndZeroIsZero(t *testing.T) {
	hit := &pb.ScoredChunk{Chunk: &pb.Chunk{Id: "id", SourceId: "s"}, Score: 0.5, Semantic: proto.Float64(0)}
	line, err := json.Marshal(newHitLine(hit, true))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"id","source_id":"s","score":0.5,"semantic":0,"lexical":null,"identifier":null,"semantic_share":null,` +
		`"lexical_share":null,"identifier_share":null,"partial":true}`
	if string(line) != want {
		t.Errorf("got %s, want %s", line, want)
	}
}
