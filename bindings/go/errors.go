package ridgepoint

/*
#include "ridgepoint.h"
*/
import "C"

import "fmt"

// Status is the kind of an error.
type Status int

// Kinds of errors, as in the C library's header.
const (
	NullPointer     = Status(C.RIDGEPOINT_STATUS_NULL_POINTER)
	InvalidUTF8     = Status(C.RIDGEPOINT_STATUS_INVALID_UTF8)
	InvalidArgument = Status(C.RIDGEPOINT_STATUS_INVALID_ARGUMENT)
	UnknownName     = Status(C.RIDGEPOINT_STATUS_UNKNOWN_NAME)
	InvalidInput    = Status(C.RIDGEPOINT_STATUS_INVALID_INPUT)
	IO              = Status(C.RIDGEPOINT_STATUS_IO)
	InvalidHandle   = Status(C.RIDGEPOINT_STATUS_INVALID_HANDLE)
	Internal        = Status(C.RIDGEPOINT_STATUS_INTERNAL)
)

// Error has the kind of an error, and a message that names the fault and the way out.
type Error struct {
	Status  Status
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return "ridgepoint: " + e.Message }

// Is compares errors by their kind: errors.Is(err, ridgepoint.ErrUnknownName).
func (e *Error) Is(target error) bool {
	kind, ok := target.(*Error)
	return ok && kind.Status == e.Status
}

// Errors to compare with by errors.Is.
var (
	ErrUnknownName     = &Error{UnknownName, "no model or GPU has this name"}
	ErrInvalidInput    = &Error{InvalidInput, "a configuration or a file is malformed or inconsistent"}
	ErrInvalidArgument = &Error{InvalidArgument, "a value is out of range or lengths do not match"}
	ErrClosed          = &Error{InvalidHandle, "the model is closed"}
)

var closed error = ErrClosed

func argument(format string, values ...any) error {
	return &Error{InvalidArgument, fmt.Sprintf(format, values...)}
}

// failed returns the error of a status and frees its text; nil for success.
func failed(status C.RidgepointStatus, text *C.char) error {
	if status == C.RIDGEPOINT_STATUS_OK {
		return nil
	}
	if text == nil {
		return &Error{Status(status), C.GoString(C.ridgepoint_status_text(C.int(status)))}
	}
	defer C.ridgepoint_string_free(text)
	return &Error{Status(status), C.GoString(text)}
}
