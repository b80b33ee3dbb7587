package chunkstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/chunkstore/chunkstore/clients/go/chunkstore/v1"
)

type handler func(pb.IndexingService_IndexDocumentsServer) error

type indexingServer struct {
	pb.UnimplementedIndexingServiceServer
	handle handler
}

func (s indexingServer) IndexDocuments(stream pb.IndexingService_IndexDocumentsServer) error {
	return s.handle(stream)
}

func serve(t *testing.T, handle handler) pb.IndexingServiceClient {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	pb.RegisterIndexingServiceServer(server, indexingServer{handle: handle})
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	connection, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return pb.NewIndexingServiceClient(connection)
}

func documents(count int, taken *atomic.Int64) iter.Seq[*pb.Document] {
	text := strings.Repeat("text ", 1000)
	return func(yield func(*pb.Document) bool) {
		for i := range count {
			taken.Add(1)
			if !yield(&pb.Document{SourceId: fmt.Sprintf("source-%d", i), Text: text}) {
				return
			}
		}
	}
}

// answer acknowledges every document but those that refuse names, then sums up.
func answer(stream pb.IndexingService_IndexDocumentsServer, refuse func(ordinal int64) bool) error {
	summary := &pb.IndexSummary{}
	for ; ; summary.Documents++ {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.Send(&pb.IndexDocumentsResponse{Event: &pb.IndexDocumentsResponse_Summary{Summary: summary}})
		}
		if err != nil {
			return err
		}
		outcome := &pb.DocumentOutcome{Ordinal: summary.Documents, SourceId: request.GetDocument().GetSourceId()}
		if refuse(summary.Documents) {
			summary.Failed++
			outcome.SourceId = ""
			outcome.Result = &pb.DocumentOutcome_Error{Error: &pb.DocumentError{Code: int32(codes.InvalidArgument)}}
		} else {
			summary.Indexed++
			outcome.Result = &pb.DocumentOutcome_Indexed{Indexed: &pb.DocumentIndexed{}}
		}
		response := &pb.IndexDocumentsResponse{Event: &pb.IndexDocumentsResponse_Outcome{Outcome: outcome}}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

func TestEveryDocumentIsAcknowledged(t *testing.T) {
	client := serve(t, func(stream pb.IndexingService_IndexDocumentsServer) error {
		return answer(stream, func(int64) bool { return false })
	})
	var taken atomic.Int64
	var outcomes int
	summary, err := IndexDocuments(t.Context(), client, documents(2000, &taken), func(*pb.DocumentOutcome) { outcomes++ })
	if err != nil {
		t.Fatal(err)
	}
	if outcomes != 2000 || summary.GetIndexed() != 2000 {
		t.Errorf("%d outcomes, summary %v", outcomes, summary)
	}
}

func TestARefusedDocumentIsAnErrorBesideTheSummary(t *testing.T) {
	client := serve(t, func(stream pb.IndexingService_IndexDocumentsServer) error {
		return answer(stream, func(ordinal int64) bool { return ordinal == 3 })
	})
	var taken atomic.Int64
	var refused []int64
	summary, err := IndexDocuments(t.Context(), client, documents(10, &taken), func(outcome *pb.DocumentOutcome) {
		if outcome.GetError() != nil {
			refused = append(refused, outcome.GetOrdinal())
		}
	})
	if err == nil || summary.GetIndexed() != 9 || len(refused) != 1 || refused[0] != 3 {
		t.Errorf("error %v, summary %v, refused %v", err, summary, refused)
	}
}

func TestTheStatusOfAStreamThatEndsEarlyIsNotHiddenBySend(t *testing.T) {
	client := serve(t, func(pb.IndexingService_IndexDocumentsServer) error {
		failure, err := status.New(codes.Unauthenticated, "no").WithDetails(&errdetails.ErrorInfo{Reason: "WHY"})
		if err != nil {
			return err
		}
		return failure.Err()
	})
	var taken atomic.Int64
	summary, err := IndexDocuments(t.Context(), client, documents(10_000, &taken), func(*pb.DocumentOutcome) {})
	if status.Code(err) != codes.Unauthenticated || Reason(err) != "WHY" || summary != nil {
		t.Errorf("got %v, %v (%q)", summary, err, Reason(err))
	}
	if taken.Load() > maxUnacknowledged+1 {
		t.Errorf("%d documents were taken for a dead stream", taken.Load())
	}
}

func TestAServerThatDoesNotReadHoldsTheDocumentsBack(t *testing.T) {
	release := make(chan struct{})
	client := serve(t, func(stream pb.IndexingService_IndexDocumentsServer) error {
		<-release
		return answer(stream, func(int64) bool { return false })
	})
	var taken atomic.Int64
	time.AfterFunc(200*time.Millisecond, func() {
		if taken.Load() > maxUnacknowledged+1 {
			t.Errorf("%d documents were taken that nobody read", taken.Load())
		}
		close(release)
	})
	summary, err := IndexDocuments(t.Context(), client, documents(1000, &taken), func(*pb.DocumentOutcome) {})
	if err != nil || summary.GetIndexed() != 1000 {
		t.Errorf("summary %v, error %v", summary, err)
	}
}

func TestASummaryBeforeTheLastDocumentIsAnError(t *testing.T) {
	client := serve(t, func(stream pb.IndexingService_IndexDocumentsServer) error {
		return stream.Send(&pb.IndexDocumentsResponse{Event: &pb.IndexDocumentsResponse_Summary{Summary: &pb.IndexSummary{}}})
	})
	documents := func(yield func(*pb.Document) bool) {
		time.Sleep(50 * time.Millisecond)
		yield(&pb.Document{SourceId: "late"})
	}
	if summary, err := IndexDocuments(t.Context(), client, documents, func(*pb.DocumentOutcome) {}); err == nil {
		t.Errorf("got %v, want an error", summary)
	}
}

func TestWhatDisagreesWithTheDocumentsSentIsAnError(t *testing.T) {
	outcome := func(ordinal int64, sourceID string) *pb.IndexDocumentsResponse {
		return &pb.IndexDocumentsResponse{Event: &pb.IndexDocumentsResponse_Outcome{Outcome: &pb.DocumentOutcome{
			Ordinal: ordinal, SourceId: sourceID, Result: &pb.DocumentOutcome_Indexed{Indexed: &pb.DocumentIndexed{}},
		}}}
	}
	summary := func(documents int64) *pb.IndexDocumentsResponse {
		return &pb.IndexDocumentsResponse{Event: &pb.IndexDocumentsResponse_Summary{
			Summary: &pb.IndexSummary{Documents: documents, Indexed: documents},
		}}
	}
	for name, responses := range map[string][]*pb.IndexDocumentsResponse{
		"no summary":                 {outcome(0, "source-0"), outcome(1, "source-1")},
		"a document without outcome": {outcome(0, "source-0"), summary(1)},
		"outcomes out of order":      {outcome(1, "source-1"), outcome(0, "source-0"), summary(2)},
		"another source's outcome":   {outcome(0, "source-1"), outcome(1, "source-0"), summary(2)},
		"one outcome too many":       {outcome(0, "source-0"), outcome(1, "source-1"), outcome(2, "source-2"), summary(3)},
		"a summary of other counts":  {outcome(0, "source-0"), outcome(1, "source-1"), summary(3)},
		"more after the summary":     {outcome(0, "source-0"), outcome(1, "source-1"), summary(2), summary(2)},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, func(stream pb.IndexingService_IndexDocumentsServer) error {
				for range 2 {
					if _, err := stream.Recv(); err != nil {
						return err
					}
				}
				for _, response := range responses {
					if err := stream.Send(response); err != nil {
						return err
					}
				}
				return nil
			})
			var taken atomic.Int64
			summary, err := IndexDocuments(t.Context(), client, documents(2, &taken), func(*pb.DocumentOutcome) {})
			if _, isStatus := status.FromError(err); isStatus {
				t.Errorf("got %v, %v; want an error of the client", summary, err)
			}
		})
	}
}
