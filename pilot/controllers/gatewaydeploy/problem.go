package gatewaydeploy

import "incumbent.dev/incumbent/pilot/controllers/reconcile"

// Reasons of problems and of their Events.
const (
	// reasonInvalidName means that the name of an object would be invalid.
	reasonInvalidName = "InvalidName"
	// ReasonInvalidTemplate means that the template is invalid.
	ReasonInvalidTemplate = "InvalidTemplate"
	// ReasonInvalidParameters means that parametersRef or the class defaults are invalid.
	ReasonInvalidParameters = "InvalidParameters"
	// ReasonUnknownParameter means that parametersRef or the class defaults have an unknown key. The other
	// keys are applied.
	ReasonUnknownParameter = "UnknownParameter"
	// ReasonNotManaged means that an object of the same name exists without the managed label.
	ReasonNotManaged = "NotManaged"
	// reasonNameTaken means that an object of the same name belongs to another Gateway.
	reasonNameTaken = "NameTaken"
	// reasonWriteFailed means that a write failed.
	reasonWriteFailed = "WriteFailed"
)

// Problem is the reason why a request in a Gateway is not fulfilled.
type Problem = reconcile.Problem

func problemf(reason, format string, args ...any) *Problem {
	return reconcile.Problemf(reason, format, args...)
}
