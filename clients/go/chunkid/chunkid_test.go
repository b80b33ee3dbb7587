package chunkid

import (
	"encoding/json"
	"os"
	"testing"
)

func TestDeriveAgreesWithTheSharedVectors(t *testing.T) {
	data, err := os.ReadFile("../../../tests/vectors/chunk_ids.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name     string `json:"name"`
		SourceID string `json:"source_id"`
		Text     string `json:"text"`
		ID       string `json:"id"`
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatal("no vectors")
	}
	for _, vector := range vectors {
		t.Run(vector.Name, func(t *testing.T) {
			id, err := Derive(vector.SourceID, vector.Text)
			if err != nil {
				t.Fatal(err)
			}
			if id != vector.ID {
				t.Errorf("got %s, want %s", id, vector.ID)
			}
		})
	}
}

func TestDeriveRefusesWhatTheServerRefuses(t *testing.T) {
	for _, pair := range [][2]string{
		{"", "text"}, {"source", ""}, {"a\x00b", "text"}, {"source", "a\x00b"}, {"a\xff", "text"}, {"source", "\xed\xa0\x80"},
	} {
		if id, err := Derive(pair[0], pair[1]); err == nil {
			t.Errorf("%q, %q: got %s, want an error", pair[0], pair[1], id)
		}
	}
}

func TestOffsets(t *testing.T) {
	const text = "né\U0001f600e\u0301x" // 6 code points of 1, 2, 4, 1, 2 and 1 bytes
	for codePoint, offset := range []int{0, 1, 3, 7, 8, 10, 11} {
		if got, err := ByteOffset(text, codePoint); err != nil || got != offset {
			t.Errorf("ByteOffset(%d) = %d, %v; want %d", codePoint, got, err, offset)
		}
		if got, err := CodePointOffset(text, offset); err != nil || got != codePoint {
			t.Errorf("CodePointOffset(%d) = %d, %v; want %d", offset, got, err, codePoint)
		}
	}
	for _, codePoint := range []int{-1, 7} {
		if got, err := ByteOffset(text, codePoint); err == nil {
			t.Errorf("ByteOffset(%d) = %d, want an error", codePoint, got)
		}
	}
	for _, offset := range []int{-1, 2, 5, 9, 12} {
		if got, err := CodePointOffset(text, offset); err == nil {
			t.Errorf("CodePointOffset(%d) = %d, want an error", offset, got)
		}
	}
}
