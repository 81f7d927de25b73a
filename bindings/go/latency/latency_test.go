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

// fill gives the columns of a batch as copies.
func fill(t *testing.T, batch []*Request) (computed, scheduled []uint32, samples []bool) {
	t.Helper()
	columns := GetColumns(len(batch))
	defer columns.Put()
	if err := columns.Fill(batch); err != nil {
		t.Fatal(err)
	}
	computed, scheduled = append(computed, columns.NumComputedTokens...), append(scheduled, columns.NumScheduledTokens...)
	return computed, scheduled, append(samples, columns.Samples...)
}

func TestColumnsHaveWhatABatchHas(t *testing.T) {
	// 10,000 requests are more than the columns of those before have room for; chunks lie at the front, at the end, in the middle
	// and nowhere.
	for length, partial := range map[int][]int{0: nil, 1: {0}, 3: {1}, 7: {0, 6}, 600: {599}, 601: {}, 900: {300, 301, 899}, 10_000: {5_000}} {
		batch := make([]*Request, length)
		for i := range batch {
			batch[i] = &Request{NumComputedTokens: math.MaxUint32 - i, NumScheduledTokens: 1 + 3*i}
		}
		for _, i := range partial {
			batch[i].Partial = true
		}
		computed, scheduled, samples := fill(t, batch)
		if len(computed) != length || len(scheduled) != length || (len(samples) > 0) != (len(partial) > 0) {
			t.Fatalf("%d requests become %d, %d and %d values", length, len(computed), len(scheduled), len(samples))
		}
		for i, r := range batch {
			if int(computed[i]) != r.NumComputedTokens || int(scheduled[i]) != r.NumScheduledTokens {
				t.Fatalf("request %d of %d: %d and %d", i, length, computed[i], scheduled[i])
			}
			if len(samples) > 0 && samples[i] == r.Partial {
				t.Fatalf("request %d of %d: samples is %v", i, length, samples[i])
			}
		}
	}
}

func TestWhatNoColumnCanHoldIsNamed(t *testing.T) {
	for words, request := range map[string]*Request{
		"nil":                             nil,
		"NumComputedTokens = -1":          {NumComputedTokens: -1, NumScheduledTokens: 1},
		"NumScheduledTokens = -9":         {NumScheduledTokens: -9},
		"NumComputedTokens = 4294967296":  {NumComputedTokens: math.MaxUint32 + 1, NumScheduledTokens: 1},
		"NumScheduledTokens = 4294967297": {NumScheduledTokens: math.MaxUint32 + 2},
		"from 0 to 4294967295":            {NumComputedTokens: math.MinInt, NumScheduledTokens: math.MaxInt},
	} {
		for index, name := range map[int]string{0: "request 0", 2: "request 2", 4: "request 4"} {
			// Beside requests that all sample, and behind one that does not.
			for _, partial := range []bool{false, true} {
				batch := []*Request{{NumScheduledTokens: 1}, {NumScheduledTokens: 2, Partial: partial}, {}, {}, {}}
				batch[index] = request
				columns := GetColumns(len(batch))
				err := columns.Fill(batch)
				columns.Put()
				if err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s, %s: %v", name, words, err)
				}
			}
		}
	}
	// A chunk may be out of range itself.
	columns := GetColumns(2)
	defer columns.Put()
	err := columns.Fill([]*Request{{}, {NumScheduledTokens: -2, Partial: true}})
	if err == nil || !strings.Contains(err.Error(), "request 1: NumComputedTokens = 0 and NumScheduledTokens = -2") {
		t.Error(err)
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
		if samples != nil && !samples[i] {
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
	if us := adapter.StepTime([]request{{100, 1, 80}, {468, 32, 500}}); us != 110+788 {
		t.Errorf("the step that ends the prompt takes %d", us)
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
