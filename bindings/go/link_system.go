//go:build ridgepoint_system

package ridgepoint

// The library that the linker finds; CGO_LDFLAGS=-L... says where else to look.

/*
#cgo LDFLAGS: -lridgepoint_c
*/
import "C"
