//go:build tools

// Package tools names what this module exists for: versitygw, which serves a folder as an S3 service.
package tools

import _ "github.com/versity/versitygw/cmd/versitygw"
