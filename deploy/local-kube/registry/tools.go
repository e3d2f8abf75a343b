//go:build tools

// Package tools names the command, so that `go mod tidy` keeps its dependencies. It is never compiled.
package tools

import _ "github.com/distribution/distribution/v3/cmd/registry"
