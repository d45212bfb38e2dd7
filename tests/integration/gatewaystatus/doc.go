// Package gatewaystatus tests the controller of that name on a real API server with the Gateway API's
// definitions, under the rights that it asks for and no others.
package gatewaystatus
