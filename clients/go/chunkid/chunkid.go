// Package chunkid derives chunk ids and converts chunk offsets, as the chunkstore server does.
package chunkid

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Derive returns the id of a chunk: hex SHA-256 of the source id, one NUL byte, and the text.
//
// Both are taken byte for byte; in particular nothing is normalized. What the server refuses has no id and is an
// error: an empty string, invalid UTF-8, and a NUL.
func Derive(sourceID, text string) (string, error) {
	if err := check(sourceID); err != nil {
		return "", fmt.Errorf("source id %w", err)
	}
	if err := check(text); err != nil {
		return "", fmt.Errorf("text %w", err)
	}
	sum := sha256.Sum256([]byte(sourceID + "\x00" + text))
	return hex.EncodeToString(sum[:]), nil
}

// ByteOffset returns where the code point with this index starts in text, in bytes.
//
// Chunk.start_char and Chunk.end_char count code points of the document, so a chunk's text is
// document[ByteOffset(start):ByteOffset(end)]. The number of code points in text gives len(text); anything above it,
// or negative, is an error.
func ByteOffset(text string, codePoint int) (int, error) {
	remaining := codePoint
	for offset := range text {
		if remaining == 0 {
			return offset, nil
		}
		remaining--
	}
	if remaining != 0 {
		return 0, fmt.Errorf("code point %d is outside the text", codePoint)
	}
	return len(text), nil
}

// CodePointOffset is the inverse of ByteOffset: how many code points of text precede the byte offset.
//
// An offset outside text, or inside a code point, is an error.
func CodePointOffset(text string, offset int) (int, error) {
	if offset < 0 || offset > len(text) || offset < len(text) && !utf8.RuneStart(text[offset]) {
		return 0, fmt.Errorf("byte %d starts no code point of the text", offset)
	}
	return utf8.RuneCountInString(text[:offset]), nil
}

func check(value string) error {
	switch {
	case value == "":
		return errors.New("is empty")
	case strings.ContainsRune(value, 0):
		return errors.New("holds NUL")
	case !utf8.ValidString(value):
		return errors.New("is not valid UTF-8")
	}
	return nil
}
