package gatewaydeploy

import "incumbent.dev/incumbent/pilot/controllers/reconcile"

// The reasons of problems, which are the reasons of the Events about them.
const (
	// ReasonInvalidName: an object would have a name that no object may have.
	ReasonInvalidName = "InvalidName"
	// ReasonInvalidTemplate: the template renders what is not to be applied.
	ReasonInvalidTemplate = "InvalidTemplate"
	// ReasonInvalidParameters: the Gateway's parametersRef, or its class' defaults, cannot be used.
	ReasonInvalidParameters = "InvalidParameters"
	// ReasonNotManaged: there is an object of that name which was not made for a Gateway.
	ReasonNotManaged = "NotManaged"
	// ReasonNameTaken: there is an object of that name which was made for another Gateway.
	ReasonNameTaken = "NameTaken"
	// ReasonWriteFailed: the API server refused a write.
	ReasonWriteFailed = "WriteFailed"
)

// Problem is why something is not done that a Gateway asks for.
type Problem = reconcile.Problem

func problemf(reason, format string, args ...any) *Problem {
	return reconcile.Problemf(reason, format, args...)
}
