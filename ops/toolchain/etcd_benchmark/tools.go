//go:build tools

// Package tools names what this module is for: etcd's own load generator, which speaks gRPC.
package tools

import _ "go.etcd.io/etcd/v3/tools/benchmark"
