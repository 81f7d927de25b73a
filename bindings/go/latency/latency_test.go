package latency

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestMicrosRoundsToTheNearest(t *testing.T) {
	for us, whole := range map[float64]int64{0: 0, 0.4999: 0, 0.5: 1, 2.5: 3, 12338.7: 12339, 1e300: math.MaxInt64, math.Inf(1): math.MaxInt64} {
		if got := Micros(us); got != whole {
			t.Errorf("%v becomes %d, expected %d", us, got, whole)
		}
	}
}

func TestTheFirstFaultIsKept(t *testing.T) {
	var faults Faults
	if faults.Err() != nil {
		t.Fatal("an error out of nothing")
	}
	first := errors.New("first")
	if faults.Note(first) != -1 || faults.Note(errors.New("second")) != NoAnswer || faults.Err() != first {
		t.Fatalf("kept: %v", faults.Err())
	}
}

func TestColumnsOfABatch(t *testing.T) {
	batch := []*Request{{NumComputedTokens: 7, NumScheduledTokens: 1}, {NumScheduledTokens: 512, Partial: true}}
	columns := GetColumns(len(batch))
	defer columns.Put()
	if err := columns.Fill(batch); err != nil {
		t.Fatal(err)
	}
	if columns.NumComputedTokens[0] != 7 || columns.NumScheduledTokens[1] != 512 || !columns.Samples[0] || columns.Samples[1] {
		t.Fatalf("%+v", columns)
	}
	for words, request := range map[string]*Request{
		"nil":                     nil,
		"NumComputedTokens = -1":  {NumComputedTokens: -1, NumScheduledTokens: 1},
		"NumScheduledTokens = -9": {NumScheduledTokens: -9},
		"from 0 to 4294967295":    {NumComputedTokens: math.MaxUint32 + 1},
	} {
		batch[1] = request
		if err := columns.Fill(batch); err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "request 1") {
			t.Errorf("%s: %v", words, err)
		}
	}
}

// perToken takes a microsecond for each computed and ten for each scheduled token, and 1,000 where none is sampled.
type perToken struct{ Model }

func (perToken) Err() error { return errors.New("the model's own") }

func (perToken) QueueingTime(r *Request) int64 { return int64(3 * r.NumScheduledTokens) }

func (perToken) StepTimeColumns(computed, scheduled []uint32, samples []bool) (int64, error) {
	us := int64(0)
	for i := range computed {
		us += int64(computed[i]) + 10*int64(scheduled[i])
		if !samples[i] {
			us += 1000
		}
	}
	return us, nil
}

func TestASimulatorsOwnRequestsAreAdapted(t *testing.T) {
	type request struct{ progress, newTokens, prompt int }
	adapter := Adapt[request](perToken{}, func(r request) Request {
		return Request{NumComputedTokens: r.progress, NumScheduledTokens: r.newTokens, Partial: r.progress+r.newTokens < r.prompt}
	}, func(r request) int { return r.prompt })
	// 100 + 10, and 64 + 320 with 1,000 as 64 + 32 tokens are not yet the prompt of 500.
	batch := []request{{100, 1, 80}, {64, 32, 500}}
	if us := adapter.StepTime(batch); us != 110+384+1000 {
		t.Errorf("the step takes %d", us)
	}
	if us := adapter.QueueingTime(batch[1]); us != 1500 {
		t.Errorf("queueing takes %d", us)
	}
	if adapter.Err() == nil || adapter.Err().Error() != "the model's own" {
		t.Errorf("%v", adapter.Err())
	}
	batch[0].newTokens = -1
	if us := adapter.StepTime(batch); us != NoAnswer || !strings.Contains(adapter.Err().Error(), "request 0") {
		t.Errorf("%d, %v", us, adapter.Err())
	}
}
