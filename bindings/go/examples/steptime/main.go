// A simulator's own requests, answered by a calibrated step-time model.
package main

import (
	"fmt"
	"log"

	"ridgepoint"
	"ridgepoint/latency"
)

// sequence is what some simulator keeps of a request.
type sequence struct {
	promptTokens, progress, newTokens int
}

func main() {
	model, err := ridgepoint.New("llama-3.1-70b", "h100", &ridgepoint.Options{
		Deployment: ridgepoint.Deployment{TensorParallelSize: 4, MaxNumSeqs: 128},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()

	simulated := latency.Adapt(model, func(s *sequence) latency.Request {
		return latency.Request{
			NumComputedTokens:  s.progress,
			NumScheduledTokens: s.newTokens,
			Partial:            s.progress+s.newTokens < s.promptTokens, // a chunk before the prompt's last
		}
	}, func(s *sequence) int { return s.promptTokens })

	batch := []*sequence{
		{promptTokens: 2000, progress: 2048, newTokens: 1},
		{promptTokens: 600, progress: 700, newTokens: 1},
		{promptTokens: 4000, progress: 1024, newTokens: 512},
	}
	fmt.Println("step:", simulated.StepTime(batch), "us")
	fmt.Println("queueing:", simulated.QueueingTime(batch[2]), "us")
	fmt.Println("scheduling:", simulated.SchedulingProcessingTime(), "us")
	if err := simulated.Err(); err != nil {
		log.Fatal(err)
	}
}
