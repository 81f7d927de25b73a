package ridgepoint

import (
	"fmt"
	"path/filepath"
	"testing"

	"ridgepoint/latency"
	"ridgepoint/tables"
)

var sizes = []int{8, 128, 1024}

func BenchmarkStepTime(b *testing.B) {
	m := llama8b(b)
	for _, n := range sizes {
		batch := decodes(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				m.StepTime(batch)
			}
		})
	}
}

// 64 decodes with a chunk that is not its prompt's last: what samples must be said then.
func BenchmarkStepTimeWithAChunk(b *testing.B) {
	m := llama8b(b)
	batch := append(decodes(64), &Request{NumScheduledTokens: 2048, Partial: true})
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		m.StepTime(batch)
	}
}

func BenchmarkStepTimeColumns(b *testing.B) {
	m := llama8b(b)
	for _, n := range sizes {
		computed, scheduled, samples := columns(decodes(n))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				m.StepTimeColumns(computed, scheduled, samples)
			}
		})
	}
}

func BenchmarkStepTimesUsPerStepOf128(b *testing.B) {
	const steps = 1000
	m := llama8b(b)
	computed, scheduled, samples := columns(decodes(steps * 128))
	offsets, out := make([]int, steps+1), make([]float64, steps)
	for i := range offsets {
		offsets[i] = i * 128
	}
	b.ResetTimer()
	for i := 0; i < b.N; i += steps {
		if err := m.StepTimesUs(offsets, computed, scheduled, samples, out); err != nil {
			b.Fatal(err)
		}
	}
}

// Exported tables, in pure Go.
func BenchmarkTables(b *testing.B) {
	out := filepath.Join(b.TempDir(), "tables.json")
	command(b, "", "export", "--model", "llama-3.1-8b", "--hardware", "h100", "--out", out)
	m, err := tables.Load(out)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range sizes {
		computed, scheduled, samples := columns(decodes(n))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				m.StepTimeColumns(computed, scheduled, samples)
			}
		})
	}
	b.Run("load", func(b *testing.B) {
		for i := 0; i < b.N; i++ {
			if _, err := tables.Load(out); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What cgo alone costs: a call that does nothing but look whether there is a model.
func BenchmarkCallWithoutRequests(b *testing.B) {
	m := llama8b(b)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		m.StepTimeColumns(nil, nil, nil)
	}
}

// A yardstick: a formula shaped like that of a coarse step-time model, eleven multiply-adds in one pass over the requests and
// roofline maxima behind it. Peer-shaped, not the peer: coefficients and terms are made up.
func BenchmarkPeerShaped(b *testing.B) {
	for _, n := range sizes {
		batch := decodes(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for i := 0; i < b.N; i++ {
				sink = peerShaped(batch)
			}
		})
	}
}

var sink int64

func peerShaped(batch []*Request) int64 {
	var flops, bytes, overhead, spread float64
	for _, r := range batch {
		q, c := float64(r.NumScheduledTokens), float64(r.NumComputedTokens)
		flops += 1.5e10*q + 5.2e5*q*c + 2.6e5*q*q
		bytes += 1.3e5*q + 1.3e5*c + 0.4*q*c
		overhead += 0.7*q + 0.003*c
		spread += 0.01*q*q + 0.001*c*c + 0.002*q*c
	}
	us := 120 + 0.9*max(flops/9e8, (bytes+1.5e10)/3e6) + max(overhead, spread) + 2.1*float64(len(batch))
	return int64(us + 0.5)
}

// A simulator's own requests: a call of its function for each.
func BenchmarkAdapted(b *testing.B) {
	m := llama8b(b)
	type sequence struct{ promptTokens, progress, newTokens int }
	adapter := latency.Adapt(m, func(s *sequence) Request {
		return Request{NumComputedTokens: s.progress, NumScheduledTokens: s.newTokens, Partial: s.progress+s.newTokens < s.promptTokens}
	}, func(s *sequence) int { return s.promptTokens })
	for _, n := range sizes {
		batch := make([]*sequence, n)
		for i, r := range decodes(n) {
			batch[i] = &sequence{promptTokens: 500, progress: r.NumComputedTokens, newTokens: 1}
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				adapter.StepTime(batch)
			}
		})
	}
}
