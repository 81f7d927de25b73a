//go:build !ridgepoint_system

package ridgepoint

// The static library that `cargo build --release --locked -p ridgepoint-c` leaves in the checkout that this module lies in.

/*
#cgo LDFLAGS: ${SRCDIR}/../../target/release/libridgepoint_c.a -lm
#cgo linux LDFLAGS: -ldl -lpthread
#cgo darwin LDFLAGS: -framework CoreFoundation
*/
import "C"
