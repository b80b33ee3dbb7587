// Command example indexes documents and retrieves passages, checking that every document is acknowledged.
//
// It prints JSON lines: the stream's summary, then the hits, best first, each with every channel's score and its share of
// the fused one. In a hit null means that the channel did not rank it, which is not a score of 0. It exits with 1, saying why on stderr, if a document or a call fails.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	chunkstore "github.com/chunkstore/chunkstore/clients/go"
	"github.com/chunkstore/chunkstore/clients/go/chunkid"
	pb "github.com/chunkstore/chunkstore/clients/go/chunkstore/v1"
)

const queryTimeout = 30 * time.Second

var topics = []string{"refunds", "invoices", "shipping", "warranty", "passwords"}

type summaryLine struct {
	Documents int64 `json:"documents"`
	Indexed   int64 `json:"indexed"`
	Failed    int64 `json:"failed"`
	Blank     int64 `json:"blank"`
	Written   int64 `json:"written"`
	Unchanged int64 `json:"unchanged"`
}

type hitLine struct {
	ID              string   `json:"id"`
	SourceID        string   `json:"source_id"`
	Score           float64  `json:"score"`
	Semantic        *float64 `json:"semantic"`
	Lexical         *float64 `json:"lexical"`
	Identifier      *float64 `json:"identifier"`
	SemanticShare   *float64 `json:"semantic_share"`
	LexicalShare    *float64 `json:"lexical_share"`
	IdentifierShare *float64 `json:"identifier_share"`
	Partial         bool     `json:"partial"`
}

func main() {
	address := flag.String("address", "127.0.0.1:50051", "host:port of the server")
	tenant := flag.String("tenant", "example", "tenant, as a development server takes it")
	count := flag.Int("count", 200, "how many documents to index")
	query := flag.String("query", "warranty 138", "what to ask")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *address, *tenant, *count, *query); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, address, tenant string, count int, query string) error {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "x-tenant-id", tenant)
	lines := json.NewEncoder(out)

	summary, indexErr := chunkstore.IndexDocuments(ctx, pb.NewIndexingServiceClient(connection), notes(count), reportFailure)
	if summary != nil {
		if err := lines.Encode(newSummaryLine(summary)); err != nil {
			return err
		}
	}
	if indexErr != nil {
		return fmt.Errorf("IndexDocuments: %s", describe(indexErr))
	}

	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	request := &pb.RetrieveChunksRequest{Query: query}
	answer, err := pb.NewRetrievalServiceClient(connection).RetrieveChunks(ctx, request)
	if err != nil {
		return fmt.Errorf("RetrieveChunks: %s", describe(err))
	}
	for _, hit := range answer.GetChunks() {
		chunk := hit.GetChunk()
		if id, err := chunkid.Derive(chunk.GetSourceId(), chunk.GetText()); err != nil || id != chunk.GetId() {
			return errors.Join(fmt.Errorf("chunk %s has another id than the derived %q", chunk.GetId(), id), err)
		}
		if err := lines.Encode(newHitLine(hit, answer.GetPartial())); err != nil {
			return err
		}
	}
	return nil
}

func newSummaryLine(summary *pb.IndexSummary) summaryLine {
	return summaryLine{
		Documents: summary.GetDocuments(),
		Indexed:   summary.GetIndexed(),
		Failed:    summary.GetFailed(),
		Blank:     summary.GetBlank(),
		Written:   summary.GetCounts().GetWritten(),
		Unchanged: summary.GetCounts().GetUnchanged(),
	}
}

func newHitLine(hit *pb.ScoredChunk, partial bool) hitLine {
	return hitLine{
		ID:       hit.GetChunk().GetId(),
		SourceID: hit.GetChunk().GetSourceId(),
		Score:    hit.GetScore(),
		// The fields, not their getters: a getter turns an absent score into 0.
		Semantic:   hit.Semantic,
		Lexical:    hit.Lexical,
		Identifier: hit.Identifier,
		// What each channel gives to the score; they add up to it.
		SemanticShare:   hit.SemanticShare,
		LexicalShare:    hit.LexicalShare,
		IdentifierShare: hit.IdentifierShare,
		Partial:         partial,
	}
}

func notes(count int) iter.Seq[*pb.Document] {
	return func(yield func(*pb.Document) bool) {
		for i := range count {
			document := &pb.Document{
				SourceId: fmt.Sprintf("note-%d", i),
				Text:     fmt.Sprintf("Note %d is about %s.", i, topics[i%len(topics)]),
				Format:   pb.DocumentFormat_DOCUMENT_FORMAT_PASSAGE,
			}
			if !yield(document) {
				return
			}
		}
	}
}

func reportFailure(outcome *pb.DocumentOutcome) {
	if failure := outcome.GetError(); failure != nil {
		reason := strings.TrimPrefix(failure.GetReason().String(), "ERROR_REASON_")
		fmt.Fprintf(os.Stderr, "document %d: %s (%s): %s\n",
			outcome.GetOrdinal(), code.Code(failure.GetCode()), reason, failure.GetMessage())
	}
}

func describe(err error) string {
	failure, isStatus := status.FromError(err)
	if !isStatus {
		return err.Error()
	}
	what := code.Code(failure.Code()).String()
	if reason := chunkstore.Reason(err); reason != "" {
		what += " (" + reason + ")"
	}
	return what + ": " + failure.Message()
}
