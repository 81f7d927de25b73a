package ridgepoint

import (
	"fmt"
	"testing"
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

// What cgo alone costs: a call that does nothing but look whether there is a model.
func BenchmarkCallWithoutRequests(b *testing.B) {
	m := llama8b(b)
	for i := 0; i < b.N; i++ {
		m.StepTimeColumns(nil, nil, nil)
	}
}

// A yardstick: a formula shaped like that of a coarse step-time model, eleven multiply-adds in one pass over the requests and three
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
	var prefillFlops, decodeFlops, prefillBytes, decodeBytes, tokens, context float64
	for _, r := range batch {
		q, c := float64(r.NumScheduledTokens), float64(r.NumComputedTokens)
		if q > 1 {
			prefillFlops += 1.5e10*q + 5.2e5*q*(c+q/2)
			prefillBytes += 1.3e5*q + 1.3e5*c
		} else {
			decodeFlops += 1.5e10*q + 5.2e5*c
			decodeBytes += 1.3e5*q + 1.3e5*c
		}
		tokens += 0.7 * q
		context += 0.003 * c
	}
	us := 120 + 0.9*max(prefillFlops/9e8, prefillBytes/3e6) + 0.8*max(decodeFlops/9e8, (decodeBytes+1.5e10)/3e6)
	us += max(tokens, context) + 2.1*float64(len(batch))
	return int64(us + 0.5)
}
