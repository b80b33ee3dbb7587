// Package chunkstore helps where a call of the generated client, chunkstore/v1, takes more than one step.
package chunkstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	pb "github.com/chunkstore/chunkstore/clients/go/chunkstore/v1"
)

// maxUnacknowledged bounds the documents sent ahead of their outcomes.
const maxUnacknowledged = 256

// errStreamOver says that the stream has ended, and that Recv knows why.
var errStreamOver = errors.New("the stream is over")

// IndexDocuments streams documents to the server and calls onOutcome with the outcome of each, in the order in which
// they were sent. A document is stored once its outcome says so, whatever becomes of the stream afterwards.
//
// It takes documents no faster than the server commits them, in a goroutine of its own, and stops taking them when the
// stream ends early; it returns after documents has yielded once more or ended. The error is nil only if every document was stored. If some were refused, the summary is returned with the error; if
// the stream failed, the summary is nil and the error carries the call's status.
func IndexDocuments(
	ctx context.Context,
	client pb.IndexingServiceClient,
	documents iter.Seq[*pb.Document],
	onOutcome func(*pb.DocumentOutcome),
) (*pb.IndexSummary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.IndexDocuments(ctx)
	if err != nil {
		return nil, err
	}
	unacknowledged := make(chan string, maxUnacknowledged)
	sending := make(chan error, 1)
	go func() { sending <- send(stream, documents, unacknowledged) }()
	summary, err := receive(stream, unacknowledged, onOutcome)
	cancel()
	sendErr := <-sending
	switch {
	case sendErr != nil && !errors.Is(sendErr, errStreamOver):
		return nil, sendErr
	case err != nil:
		return nil, err
	case sendErr != nil:
		return nil, errors.New("the summary came before every document was sent")
	case summary.GetFailed() != 0:
		return summary, fmt.Errorf("%d of %d documents were not stored", summary.GetFailed(), summary.GetDocuments())
	}
	return summary, nil
}

// Reason returns the reason in the ErrorInfo of a failed call, such as INVALID_TENANT, or "" where err has none.
func Reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// send returns errStreamOver where it could not send everything because the stream has ended.
func send(stream pb.IndexingService_IndexDocumentsClient, documents iter.Seq[*pb.Document], unacknowledged chan<- string) error {
	for document := range documents {
		select {
		case unacknowledged <- document.GetSourceId():
		case <-stream.Context().Done():
			return errStreamOver
		}
		if err := stream.Send(&pb.IndexDocumentsRequest{Document: document}); err != nil {
			// io.EOF says that the stream is over, not why: the status comes out of Recv.
			if errors.Is(err, io.EOF) {
				return errStreamOver
			}
			return err
		}
	}
	return stream.CloseSend()
}

func receive(
	stream pb.IndexingService_IndexDocumentsClient, unacknowledged <-chan string, onOutcome func(*pb.DocumentOutcome),
) (*pb.IndexSummary, error) {
	var received, failed int64
	for {
		response, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("the stream ended without a summary: %w", io.ErrUnexpectedEOF)
			}
			return nil, err
		}
		if outcome := response.GetOutcome(); outcome != nil {
			if err := checkOutcome(outcome, received, unacknowledged); err != nil {
				return nil, err
			}
			received++
			if outcome.GetIndexed() == nil {
				failed++
			}
			onOutcome(outcome)
			continue
		}
		summary := response.GetSummary()
		if len(unacknowledged) != 0 || summary.GetDocuments() != received || summary.GetFailed() != failed {
			return nil, fmt.Errorf("the summary (%v) disagrees with %d outcomes, %d of them errors", summary, received, failed)
		}
		// Reading to the end brings the status, which may still be an error.
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			if err == nil {
				err = errors.New("the stream went on after the summary")
			}
			return nil, err
		}
		return summary, nil
	}
}

func checkOutcome(outcome *pb.DocumentOutcome, ordinal int64, unacknowledged <-chan string) error {
	if outcome.GetOrdinal() != ordinal {
		return fmt.Errorf("outcome %d came in place of %d", outcome.GetOrdinal(), ordinal)
	}
	select {
	case sourceID := <-unacknowledged:
		if got := outcome.GetSourceId(); got != sourceID && (got != "" || outcome.GetIndexed() != nil) {
			return fmt.Errorf("outcome %d is of another source than the document", ordinal)
		}
		return nil
	default:
		return fmt.Errorf("outcome %d came before its document was sent", ordinal)
	}
}
